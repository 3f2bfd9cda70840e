"""The list of targets: what each is called, which words its inputs are made of, and how much of it a quick run takes.

Not here: the targets (their own files), the quick run (test_fuzz.py) and the long one (campaign.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuzz import backend, bodies, files, front, heads, machines, stories, streams, words

CORPUS = Path(__file__).parent / "corpus"
# Parsers are done with an input in some ten microseconds.
QUICK = 4000


@dataclass(frozen=True, slots=True)
class Target:
    """`run` raises on a broken property. `max_bytes` bounds an input of the long run; `executions` are those of the
    quick one; `share` is how many of a hundred executions of a long run are this target's."""

    name: str
    run: Callable[[bytes], None]
    words: tuple[bytes, ...] = ()
    max_bytes: int = 4096
    executions: int = QUICK
    share: float = 10.0

    @property
    def corpus(self) -> Path:
        """Seeds, and every input that has ever found something."""
        return CORPUS / self.name

    def seeds(self) -> list[Path]:
        """The files of the corpus, in the order of their names."""
        return sorted(self.corpus.iterdir()) if self.corpus.is_dir() else []


TARGETS = {
    target.name: target
    for target in (
        Target("scanner", streams.scanner, words.STREAM, max_bytes=1024, share=6),
        Target("event_hold", streams.event_hold, words.STREAM, max_bytes=1024, share=6),
        Target("told", stories.told, max_bytes=512, share=2),
        Target("traits", bodies.traits, words.BODY, share=8),
        Target("answer", bodies.answer, words.BODY, share=20),
        Target("engine_words", bodies.engine_words, words.ENGINE, share=20),
        Target("route", heads.route, words.TARGET, max_bytes=256, share=22),
        Target("header_filter", heads.header_filter, words.HEADER, max_bytes=512, share=6),
        Target("config_file", files.config_file, words.CONFIG, executions=400, share=0.2),
        Target("circuit", machines.circuit, max_bytes=300, share=4),
        Target("health_signs", machines.health_signs, max_bytes=200, share=4),
        Target("desk", machines.desk, max_bytes=300, executions=800, share=0.3),
        Target("front", front.front, words.HTTP, executions=1000, share=0.3),
        Target("backend", backend.backend, words.REPLY, executions=600, share=0.2),
    )
}
"""By name."""
