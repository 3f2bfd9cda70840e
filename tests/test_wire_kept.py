"""A failed answer is kept while it is small, plain and quick; its connection is closed in every case."""

import pytest
from fakes.answers import FakeAnswer

from proxy.errors import BackendBroken
from proxy.model import Dialect
from proxy.protocol.sse import Scanner
from proxy.wire import kept
from proxy.wire.attempt import Opened, Verdict
from proxy.wire.kept import KEEP_MAX_BYTES, Kept, keep

FIELDS = [(b"content-type", b"application/json"), (b"retry-after", b"2")]


def failed(answer: FakeAnswer, scanner: Scanner | None = None) -> Opened:
    return Opened(answer, Verdict.FAILED, scanner)


async def test_plain_answer_is_kept_whole() -> None:
    answer = FakeAnswer([b"ab", b"c"], status=503, fields=FIELDS)
    assert await keep(failed(answer)) == Kept(503, FIELDS, b"abc")


async def test_stream_is_not_kept() -> None:
    assert await keep(failed(FakeAnswer([b"x"]), Scanner(Dialect.CHAT))) is None


@pytest.mark.parametrize(
    "answer",
    [FakeAnswer([b"x" * KEEP_MAX_BYTES, b"x"]), FakeAnswer([b"x"], failure=BackendBroken("broke"))],
    ids=["large", "broken"],
)
async def test_large_or_broken_answer_is_not_kept(answer: FakeAnswer) -> None:
    assert await keep(failed(answer)) is None


async def test_late_answer_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEEP_WITHIN_S", 0.01)
    assert await keep(failed(FakeAnswer([b"x"], hangs=True))) is None


@pytest.mark.parametrize(
    "answer",
    [FakeAnswer([b"x"]), FakeAnswer([b"x" * KEEP_MAX_BYTES, b"x"]), FakeAnswer(failure=BackendBroken("broke"))],
    ids=["whole", "large", "broken"],
)
async def test_answer_is_closed_whether_kept_or_not(answer: FakeAnswer) -> None:
    await keep(failed(answer))
    assert answer.closed == 1
