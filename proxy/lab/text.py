"""Tokens to text: made-up but readable words and code, the same for the same seed. No meaning lives here."""

import json
import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from random import Random

# A token of an English or coding vocabulary is about four bytes; prompts are counted by this.
BYTES_PER_TOKEN = 4

_CORPUS_TOKENS = 24_000
_PIECE = re.compile(r" ?[A-Za-z]{1,6}|\n *| ?[^A-Za-z\n ]+| +")

_THINGS = (
    "request",
    "batch",
    "cache",
    "queue",
    "worker",
    "token",
    "index",
    "buffer",
    "step",
    "limit",
    "record",
    "table",
    "window",
    "draft",
)
_ACTS = ("reads", "writes", "keeps", "counts", "checks", "moves", "holds", "drops", "sorts", "merges", "opens")
_HOW = ("slowly", "once", "in order", "twice at most", "before the end", "by name", "without waiting", "as it came")
_WHYS = (
    "so the next one can start",
    "because the order matters here",
    "and nothing else is touched",
    "which keeps the code short",
    "as long as there is room",
    "until the last one is done",
    "so a test can show it",
)
_OPENERS = ("First", "Then", "Here", "In short", "After that", "Note that", "In this case", "For now")


@dataclass(frozen=True, slots=True)
class Corpus:
    """A loop of tokens with their text and their JSON-escaped bytes; token i starts at `cuts[i]` and `json_cuts[i]`.

    `openings` are the token indexes at which a sentence or a block of code begins.
    """

    text: str
    cuts: tuple[int, ...]
    json: bytes
    json_cuts: tuple[int, ...]
    openings: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def take(self, start: int, count: int) -> str:
        """The text of `count` tokens from token `start` on, round the loop."""
        begin = start % len(self)
        end = begin + count
        if end <= len(self):
            return self.text[self.cuts[begin] : self.cuts[end]]
        return self.text[self.cuts[begin] :] + self.take(0, end - len(self))

    def take_json(self, start: int, count: int) -> bytes:
        """As `take`, ready to stand between the quotes of a JSON string."""
        begin = start % len(self)
        end = begin + count
        if end <= len(self):
            return self.json[self.json_cuts[begin] : self.json_cuts[end]]
        return self.json[self.json_cuts[begin] :] + self.take_json(0, end - len(self))

    def opening(self, seed: int) -> int:
        """The token at which the text for `seed` begins."""
        return self.openings[seed % len(self.openings)]


@cache
def corpus() -> Corpus:
    """The corpus; made once, the same in every process."""
    rng = Random(20)  # Fixed: two engines must answer one request with one text, as speculation promises.
    parts: list[str] = []
    size = 0
    while size < _CORPUS_TOKENS * BYTES_PER_TOKEN:
        part = _code(rng) if rng.random() < 0.3 else _paragraph(rng)
        parts.append(part)
        size += len(part)
    return _cut("".join(parts), tuple(accumulate((len(part) for part in parts), initial=0))[:-1])


def count_tokens(text: str) -> int:
    """Tokens of a prompt, by its size in UTF-8: one for each four bytes, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def _cut(text: str, beginnings: tuple[int, ...]) -> Corpus:
    pieces = _PIECE.findall(text)
    cuts = tuple(accumulate((len(piece) for piece in pieces), initial=0))
    escaped = [json.dumps(piece)[1:-1].encode() for piece in pieces]
    json_cuts = tuple(accumulate((len(piece) for piece in escaped), initial=0))
    openings = tuple(sorted({bisect_left(cuts, begin) for begin in beginnings}))
    return Corpus(text, cuts, b"".join(escaped), json_cuts, openings)


def _sentence(rng: Random) -> str:
    one, two = rng.choice(_THINGS), rng.choice(_THINGS)
    start = f"{rng.choice(_OPENERS)}, the {one}" if rng.random() < 0.5 else f"The {one}"
    return f"{start} {rng.choice(_ACTS)} each {two} {rng.choice(_HOW)} {rng.choice(_WHYS)}."


def _paragraph(rng: Random) -> str:
    return " ".join(_sentence(rng) for _ in range(rng.randint(2, 4))) + "\n\n"


def _code(rng: Random) -> str:
    name, item, verb = rng.choice(_THINGS), rng.choice(_THINGS), rng.choice(_ACTS)
    limit = rng.randint(2, 64)
    lines = (
        "```python",
        f"def {verb}_{name}({item}s: list[int], limit: int = {limit}) -> int:",
        f'    """Say how many {item}s the {name} {verb}."""',
        "    total = 0",
        f"    for {item} in {item}s[:limit]:",
        f"        if {item} > total:",
        f"            total += {item}",
        "    return total",
        "```",
    )
    return "\n".join(lines) + "\n\n"
