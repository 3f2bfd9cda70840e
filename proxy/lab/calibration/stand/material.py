"""Long text to put in front of a question: files of a repository that never was, made of our own conversations.

Deterministic and varied: what drafters meet is text like this and not random tokens, nor one page again and again.
Questions are in questions.py.
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
    *("request", "result", "value", "task", "client", "cache", "row", "line", "amount", "total", "model", "setting"),
)
_NOUN = re.compile(rf"\b({'|'.join(_NOUNS)})(?=s?\b|_)")
# A line or two would come again word for word, whatever is exchanged in it.
_LEAST_CHARS = 240
# Numbers of two digits and more are others each time too.
_NUMBER = re.compile(r"(?<![\w.])[1-9]\d+(?![\w.])")
# Of a text as many of its lines as this at least, so that the same one begins and ends elsewhere when it comes again.
_LEAST_SHARE = 0.6
_FOLDERS = ("src", "lib", "tests", "docs", "tools", "services/api", "services/jobs", "web")
# Texts that are cut to a size are kept: the same few are asked for again and again, some hundred KiB each.
_KEPT = 64


@lru_cache(maxsize=_KEPT)
def material(kind: PromptKind, number: int, chars: int) -> str:
    """`chars` characters of material `number` (from 0) for questions of this kind: the same on every machine."""
    rng = Random(f"{kind}/{number}")
    conversations = {*CONVERSATIONS[kind], *CONVERSATIONS[PromptKind.MIXED]}
    texts = sorted(
        text
        for conversation in conversations
        for role, text in conversation
        if role != "system" and len(text) >= _LEAST_CHARS
    )
    parts, size = [INTRO], len(INTRO)
    while size < chars:
        rng.shuffle(texts)
        for text in texts:
            parts.append(_file(rng, text))
            size += len(parts[-1])
    return "".join(parts)[:chars]


def _file(rng: Random, text: str) -> str:
    """A part of one text as a file with a name, its nouns and numbers exchanged."""
    lines = text.splitlines()
    kept = rng.randint(max(1, round(_LEAST_SHARE * len(lines))), len(lines))
    start = rng.randint(0, len(lines) - kept)
    shift = rng.randrange(len(_NOUNS))
    part = "\n".join(lines[start : start + kept])
    part = _NOUN.sub(lambda found: _NOUNS[(_NOUNS.index(found[1]) + shift) % len(_NOUNS)], part)
    part = _NUMBER.sub(lambda found: str(rng.randrange(10 ** (len(found[0]) - 1), 10 ** len(found[0]))), part)
    name = f"{rng.choice(_FOLDERS)}/{rng.choice(_NOUNS)}_{rng.choice(_NOUNS)}_{rng.randrange(100)}.md"
    return f"=== {name} (revision {rng.randrange(1000)})\n{part}\n\n"
