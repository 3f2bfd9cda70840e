"""Long text to put in front of a question: files of a repository that never was, made of our own conversations.

Deterministic and varied: what drafters guess well is text like this and not random tokens. Questions are in
questions.py.
"""

import re
from functools import lru_cache
from random import Random

from proxy.lab.prompts import CONVERSATIONS, PromptKind

INTRO = "These files are open in the editor. Read them before you answer.\n\n"

# Words that stand for each other: a block that comes again has other names in it, so that it is no mere copy.
_NOUNS = (
    *("order", "invoice", "bucket", "interval", "customer", "token", "session", "record", "worker", "queue"),
    *("event", "ticket", "payment", "reading", "report", "message", "account", "parcel", "sensor", "booking"),
)
_NOUN = re.compile(rf"\b({'|'.join(_NOUNS)})(?=s?\b|_)")
_FOLDERS = ("src", "lib", "tests", "docs", "tools", "services/api", "services/jobs", "web")
# Texts that are cut to a size are kept: the same few are asked for again and again, some hundred KiB each.
_KEPT = 64


@lru_cache(maxsize=_KEPT)
def material(kind: PromptKind, number: int, chars: int) -> str:
    """`chars` characters of material `number` (from 0) for questions of this kind: the same on every machine."""
    rng = Random(f"{kind}/{number}")
    texts = [text for conversation in CONVERSATIONS[kind] for role, text in conversation if role != "system"]
    parts, size = [INTRO], len(INTRO)
    while size < chars:
        rng.shuffle(texts)
        for text in texts:
            parts.append(_file(rng, text))
            size += len(parts[-1])
    return "".join(parts)[:chars]


def _file(rng: Random, text: str) -> str:
    """One text as a file with a name, its nouns exchanged."""
    shift = rng.randrange(len(_NOUNS))
    renamed = _NOUN.sub(lambda found: _NOUNS[(_NOUNS.index(found[1]) + shift) % len(_NOUNS)], text)
    name = f"{rng.choice(_FOLDERS)}/{rng.choice(_NOUNS)}_{rng.choice(_NOUNS)}_{rng.randrange(100)}.md"
    return f"=== {name} (revision {rng.randrange(1000)})\n{renamed}\n\n"
