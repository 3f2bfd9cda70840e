"""Judges what a client got: whole and byte for byte what an engine wrote for it, or an honest error. Nothing else is.

Promises that need no client's answer are in watch.py.
"""

from time import monotonic

import orjson
from fakes.raw import Said
from fakes.storm.books import Attempt, Books, Record
from fakes.storm.fates import MARK
from fakes.storm.plan import FIRST_BYTE_S

from proxy import errors
from proxy.errors import CrossoverError
from proxy.model import Dialect


def _all_of(kind: type[CrossoverError]) -> list[type[CrossoverError]]:
    return [kind, *(deeper for each in kind.__subclasses__() for deeper in _all_of(each))]


STATUS_BY_CODE = {kind.code: kind.status for kind in _all_of(errors.CrossoverError)}
STATUSES = set(STATUS_BY_CODE.values())
HONEST_END = "an answer is whole, or its end tells that it is not"


def judge(books: Books, record: Record, said: Said) -> str:
    """The outcome of a request whose client has stayed to the end of its answer, whole or not."""
    record.answers += 1
    books.holds(record.answers == 1, "one answer for one request", f"{record.answers} answers", record.id)
    named = said.header("x-request-id")
    books.holds(named == record.id, "an answer bears its request's id", f"it bears {named}", record.id)
    mark = said.header(MARK)
    if mark is None:
        return _own(books, record, said)
    attempt = record.attempt(int(mark))
    if not books.holds(attempt, "an answer is its request's own", f"attempt {mark}", record.id) or attempt is None:
        return "another's"
    role_known = said.header("x-crossover-backend") in ("speculative", "baseline")
    books.holds(role_known, "an answer tells its backend", f"attempt {mark}", record.id)
    later = [each for each in record.attempts if each.leased and each.serial > attempt.serial]
    books.holds(
        not later or attempt.status >= 429,
        "nothing is retried after commit",
        f"answered from {mark} of more",
        record.id,
    )
    return _whole(books, record, said, attempt) if said.whole else _cut(books, record, said, attempt)


def _whole(books: Books, record: Record, said: Said, attempt: Attempt) -> str:
    books.holds(
        said.body == bytes(attempt.body),
        "an answer has the bytes that its engine wrote",
        f"{len(said.body)} bytes, not {len(attempt.body)}, of attempt {attempt.serial} ({attempt.fate})",
        record.id,
    )
    books.holds(attempt.ending, HONEST_END, f"a clean end of attempt {attempt.serial} ({attempt.fate})", record.id)
    if attempt.good:
        return "served"
    return "engine_error_event" if attempt.status == 200 else f"engine_{attempt.status}"


def _cut(books: Books, record: Record, said: Said, attempt: Attempt) -> str:
    dialect, written = record.plan.sample.dialect, bytes(attempt.body)
    slow = record.plan.conduct in ("slow", "asleep")
    excused = slow or books.closing or attempt.killed or books.starved_since(record.begun_s)
    books.holds(
        excused or not attempt.sent, "a whole answer arrives whole", f"attempt {attempt.serial} was cut", record.id
    )
    if not record.plan.stream:
        same = written.startswith(said.body)
        books.holds(same, "an answer has the bytes that its engine wrote", f"attempt {attempt.serial}", record.id)
        return "cut"
    rest = _beyond(said.body, written, b"\n" if dialect is Dialect.OLLAMA else b"\n\n")
    told = _is_error_event(rest, dialect)
    untold = (slow or books.closing) and written.startswith(said.body)
    books.holds(told or untold, HONEST_END, f"attempt {attempt.serial} ends with {rest[-120:]!r}", record.id)
    return "told_in_stream" if told else "cut"


def _beyond(got: bytes, written: bytes, mark: bytes) -> bytes:
    """What was got beyond the whole events that were written."""
    if written.startswith(got):
        # Where it stops inside an event it has not been told to end.
        return b"" if got.endswith(mark) or not got else got[got.rfind(mark) + len(mark) if mark in got else 0 :]
    same = next(
        (at for at, (a, b) in enumerate(zip(got, written, strict=False)) if a != b), min(len(got), len(written))
    )
    boundary = got.rfind(mark, 0, same)
    return got[boundary + len(mark) if boundary >= 0 else 0 :]


def _is_error_event(rest: bytes, dialect: Dialect) -> bool:
    lines = [line for line in rest.split(b"\n") if line]
    if dialect is Dialect.OLLAMA:
        return len(lines) == 1 and isinstance(_parsed(lines[0]).get("error"), str)
    if dialect in (Dialect.MESSAGES, Dialect.RESPONSES) and (not lines or lines.pop(0) != b"event: error"):
        return False
    value = _parsed(lines[0].removeprefix(b"data: ")) if len(lines) == 1 else {}
    if dialect is Dialect.RESPONSES:
        return value.get("type") == "error" and value.get("code") in STATUS_BY_CODE
    return isinstance(value.get("error"), dict)


def _own(books: Books, record: Record, said: Said) -> str:
    """An error of the proxy's own making."""
    honest = "an error of ours has its status and its shape"
    books.holds(said.whole, honest, f"{said.status} is not whole", record.id)
    value, code = _parsed(said.body), ""
    error = value.get("error")
    if record.plan.sample.dialect is Dialect.OLLAMA:
        right = isinstance(error, str) and said.status in STATUSES
    elif record.plan.sample.dialect is Dialect.MESSAGES:
        right = isinstance(error, dict) and value.get("type") == "error" and said.status in STATUSES
    else:
        code = str(error.get("code")) if isinstance(error, dict) else ""
        right = STATUS_BY_CODE.get(code) == said.status
    books.holds(right and said.status >= 400, honest, f"{said.status} {said.body[:200]!r}", record.id)
    books.holds(said.status != 500, "the proxy itself never fails", f"{said.body[:200]!r}", record.id)
    retry = said.header("retry-after") or said.status not in (429, 503)
    books.holds(retry, "busy tells when to come again", f"{said.status}", record.id)
    thrown = [each for each in record.attempts if each.good and each.sent and not each.killed]
    # A limit is one on a busy machine too, where the engine's answer came a moment behind it. It is counted by the
    # loop's clock, which stands still for a turn and tells whole milliseconds: a little less than it is on ours.
    late_s = 0.9 * FIRST_BYTE_S
    late = said.status == 504 and any(monotonic() - each.lease.opened_at_s >= late_s for each in record.leases)
    excused = late or books.closing or books.starved_since(record.begun_s)
    books.holds(excused or not thrown, "a whole answer is not thrown away", f"{said.status} {code}", record.id)
    return f"proxy_{said.status}"


def _parsed(data: bytes) -> dict[str, object]:
    try:
        value = orjson.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
