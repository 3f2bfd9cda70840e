"""What a browser lets a page of another origin do: the headers that say so (Fetch standard, CORS protocol).

Without credentials: keys travel in headers that the page sets itself, so no cookie or login of the browser is asked
for. Which origins are let in is a setting; putting the fields on an answer is the gate's.
"""

import re
from collections.abc import Iterable, Sequence

from proxy.protocol.fields import Fields

ANY = b"*"
"""The origin that stands for every one."""

PREFIX = b"access-control-"
"""What all these headers begin with: an engine's own give way, since two who answer contradict each other."""

EXPOSED = (
    *("x-request-id", "x-crossover-backend", "x-crossover-reason", "x-crossover-in-flight", "x-crossover-because"),
    *("x-crossover-cached", "retry-after"),
)
"""Headers of an answer that a page may read beside those that every page may."""

# Browsers ask again after this long at the latest, so a changed list reaches every page within ten minutes.
MAX_AGE_S = 600

_EXPOSED = ", ".join(EXPOSED).encode()

_NAMES = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+(?:[ \t]*,[ \t]*[!#$%&'*+\-.^_`|~0-9A-Za-z]+)*")


def allowed_origin(origins: Sequence[bytes], origin: bytes | None) -> bytes | None:
    """What Access-Control-Allow-Origin says to a page of this origin: itself, `*`, or None (nothing)."""
    if ANY in origins:
        return ANY
    return origin if origin in origins else None


def answer_fields(origins: Sequence[bytes], origin: bytes | None) -> Fields:
    """The fields of an answer, whoever made it, but for Vary."""
    allowed = allowed_origin(origins, origin)
    if allowed is None:
        return []
    return [(b"Access-Control-Allow-Origin", allowed), (b"Access-Control-Expose-Headers", _EXPOSED)]


def preflight_fields(methods: Iterable[str], asked_headers: bytes | None) -> Fields:
    """What the answer to a preflight says beside the origin. The headers that are asked for are allowed as they are:
    what a page may send is what any client may."""
    said = [
        (b"Access-Control-Allow-Methods", ", ".join(sorted(methods)).encode()),
        (b"Access-Control-Max-Age", b"%d" % MAX_AGE_S),
        (b"Vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
    ]
    if asked_headers is not None and _NAMES.fullmatch(asked_headers):
        said.append((b"Access-Control-Allow-Headers", asked_headers))
    return said


def varies_by_origin(origins: Sequence[bytes], vary: Iterable[bytes]) -> bool:
    """Whether `Vary: Origin` has to be added to these Vary fields, or a cache gives one page's answer to another."""
    named = {word.strip().lower() for value in vary for word in value.split(b",")}
    return ANY not in origins and not named & {b"origin", b"*"}
