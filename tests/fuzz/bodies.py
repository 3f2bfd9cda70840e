"""What is read from bytes that others wrote: request bodies, and what engines say of themselves.

Every reader is total: it gives a sane value for any bytes, the same one each time, with work in step with their size.
"""

import math
import sys
from types import FrameType

import orjson
from fuzz.draws import Draws, require

from proxy.model import Dialect, EngineFacts, EngineLoad, Role, Traits, Usage
from proxy.protocol import allowlist, engines
from proxy.protocol.answers import read_answer, read_event
from proxy.protocol.openai import MAX_MODEL_CHARS, read_traits
from proxy.protocol.prefixes import BLOCK_BYTES, MAX_BLOCKS
from proxy.protocol.weights import MAX_WEIGHT

ROUTES = tuple(row for rows in allowlist.ROUTES.values() for row in rows if row.counts)
TYPES = (
    *(b"application/json", b"", b"application/json; charset=utf-8", b"text/plain", b"APPLICATION/JSON"),
    b"a\x80json",
)
CODINGS = (b"", b"identity", b" Identity ", b"gzip", b"\t")
DIALECTS = tuple(Dialect)
# Calls of a reading beyond those that grow with the body: a dozen fields are looked at, each by a few functions.
CALLS_OF_ANY_BODY = 200
# One element of a list costs a few calls and at least two bytes.
CALLS_OF_A_BYTE = 4
# Largest body whose calls are counted, and of those one in eight: counting slows the reading down.
MAX_COUNTED_BYTES = 512
COUNTED_EVERY = 8


def traits(data: bytes) -> None:
    """Traits are total, the same for the same body, within their bounds, and read with work linear in the body."""
    draws = Draws(data)
    route, kind, coding = draws.one_of(ROUTES), draws.one_of(TYPES), draws.one_of(CODINGS)
    asked = draws.one_of((None, *Role))
    body = draws.rest()

    def read() -> Traits:
        return read_traits(route, body, kind, coding, asked, prefixed=True, key=coding)

    found = read()
    require(1 <= found.weight <= MAX_WEIGHT and type(found.weight) is int, f"weight {found.weight}")
    require(found.prompt_bytes == len(body) and found.asked is asked, "size or wish were changed")
    require(len(found.prefix) <= min(MAX_BLOCKS, 6 * len(body) // BLOCK_BYTES), "more blocks than the body has")
    require(found.model is None or len(found.model) <= MAX_MODEL_CHARS, "a long model name was kept")
    require(all(type(flag) is bool for flag in (found.stream, found.constrained, found.session)), "a flag is no flag")
    if coding == b"gzip":
        require(found.weight == 1 and not found.constrained, "a coded body was read")
    if len(body) > MAX_COUNTED_BYTES or len(body) % COUNTED_EVERY:
        return
    calls = _Calls()
    with calls:
        again = read()
    require(again == found, "the same body, other traits")
    limit = CALLS_OF_ANY_BODY + CALLS_OF_A_BYTE * len(body)
    require(calls.count <= limit, f"{calls.count} calls to read {len(body)} bytes")


def answer(data: bytes) -> None:
    """Usage and facts of any answer are counts that are not negative and words that are short and printable."""
    draws = Draws(data)
    dialect = draws.one_of(DIALECTS)
    body = draws.rest()
    _require_counts(read_answer(body, dialect))
    try:
        value = orjson.loads(body)
    except ValueError:
        return
    if not isinstance(value, dict):
        return
    facts = read_event(value, dialect)
    _require_counts(facts.usage)
    words = [facts.finish]
    if facts.error is not None:
        words += [facts.error.error_type, facts.error.code]
        status = facts.error.status
        require(status is None or 400 <= status <= 599, f"an error with status {status}")
    for word in words:
        require(word is None or (0 < len(word) <= 64 and word.isascii() and word.isprintable()), "a bad word was kept")


def engine_words(data: bytes) -> None:
    """What an engine says of itself is read to finite numbers that are not negative, or to nothing."""
    draws = Draws(data)
    reader = draws.byte() % 5
    body = draws.rest()
    if reader == 0:
        _require_load(engines.parse_loads(body))
    elif reader == 1:
        _require_facts(engines.parse_server_info(body))
    elif reader == 2:
        _require_facts(engines.parse_models(body))
    elif reader == 3:
        require(type(engines.shows_keys(body)) is bool, "shows_keys gave no answer")
    else:
        _require_load(engines.parse_metrics(body.decode("utf-8", "replace")))


class _Calls:
    """Counts the Python calls made inside its block."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self._former = sys.getprofile()
        sys.setprofile(self._seen)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._former)

    def _seen(self, frame: FrameType, event: str, _: object) -> None:
        self.count += event == "call" and "/proxy/" in frame.f_code.co_filename


def _require_counts(usage: Usage) -> None:
    require(all(type(count) is int and count >= 0 for count in usage), f"usage {usage}")


def _require_load(load: EngineLoad | None) -> None:
    if load is None:
        return
    numbers = [load.running, load.waiting, load.at_s, load.max_running_requests, load.accept_length]
    for number in (*numbers, *(load.moments or ())):
        require(number is None or (math.isfinite(number) and number >= 0), f"a number {number} in {load}")
    require(type(load.running) is int and type(load.waiting) is int, "sequences are no whole numbers")
    require(load.moments is None or len(load.moments) == engines.MOMENTS, "moments are not six")


def _require_facts(facts: EngineFacts | None) -> None:
    if facts is None:
        return
    for count in (facts.context_length, facts.max_running_requests):
        require(count is None or (type(count) is int and count >= 0), f"a count {count}")
    for word in (facts.model, facts.version, facts.weight_version, facts.speculative_algorithm):
        require(word is None or (isinstance(word, str) and word != ""), "a fact that is no text")
    require(type(facts.speculative_adaptive) is bool, "speculative_adaptive is no flag")
