"""The clients of a storm: patient ones, slow ones, those that leave at any moment, and those that speak no HTTP."""

import asyncio
import random
from collections.abc import Sequence

from fakes.raw import RawClient, Said, request
from fakes.storm import verdicts
from fakes.storm.books import Books, Record
from fakes.storm.fates import reset
from fakes.storm.plan import Plan

from proxy.wire.client import MAX_AHEAD_BYTES

# Back-pressure should reach the proxy early: a client's buffer is small.
BUFFER_BYTES = 1 << 16
READ_BYTES = 1 << 15
# Many times what the proxy's own limits come to together: whoever waits longer waits in vain.
PATIENCE_S = 30.0
# Longer than `unread_timeout_s` of the storm: the proxy drops such a client.
ASLEEP_S = 2.5

GARBAGE = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50,
    b"GET\r\n\r\n",
    b"BREW /v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n{",
    b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 70_000 + b"\r\n\r\n",
    b"POST /flush_cache HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
    b"GET //v1/../flush_cache HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET http://elsewhere/v1/models HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-request-id: a b\r\ncontent-length: 9\r\n\r\n{",
)


class Left(Exception):
    """The client has left as it meant to."""


class Patient(RawClient):
    """A connection with a small buffer."""

    async def __aenter__(self) -> "Patient":
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=BUFFER_BYTES)
        return self

    def go(self, *, by_reset: bool) -> None:
        if by_reset:
            reset(self.writer)
        else:
            self.writer.close()


class Clients:
    """Sends requests to one port and judges what comes."""

    def __init__(self, port: int, books: Books) -> None:
        self.port, self.books = port, books

    async def connection(self, plans: Sequence[Plan], *, pipelined: bool) -> None:
        """Some requests one after the other on one connection, or all at once, where they are not so large that their
        crowd would get the client dropped."""
        pipelined = pipelined and sum(len(_bytes(plan)) for plan in plans[1:]) <= MAX_AHEAD_BYTES
        records = [self.books.begin(plan) for plan in plans]
        left = list(records)
        try:
            async with asyncio.timeout(PATIENCE_S), Patient(self.port) as client:
                if pipelined:
                    await client.send(b"".join(_bytes(plan) for plan in plans))
                while left and await self._one(client, left[0], sent=pipelined):
                    left.pop(0)
                left = left[1:]
                self._nothing_more(client, records)
        except TimeoutError:
            ids = [record.id for record in records if record.outcome is None]
            self.books.holds(not ids, "nobody waits for ever", f"{PATIENCE_S:g} s in vain", *ids)
        except OSError as error:
            ids = [record.id for record in records]
            self.books.holds(self.books.closing, "the door is open", f"{type(error).__name__}", *ids)
        for record in records:
            if record.outcome is None:
                self.books.finish(record, "unsent")

    def _nothing_more(self, client: Patient, records: list[Record]) -> None:
        over = all(record.outcome is not None for record in records)
        more = bytes(client.reader._buffer) if over and records[-1].answers else b""  # type: ignore[attr-defined]
        self.books.holds(not more, "one answer for one request", f"{more[:80]!r} after the last", records[-1].id)

    async def _one(self, client: Patient, record: Record, *, sent: bool) -> bool:
        """One request to its end; whether the connection is good for another."""
        plan = record.plan
        said: Said | None = None
        try:
            if not sent:
                await self._send(client, plan)
            await self._before_head(client, record)
            said = await client.head()
            record.headed = True
            self.books.note(record.id, f"its client has the head: {said.status}, {said.header('x-storm-attempt')}")
            await self._body(client, record, said)
        except Left:
            self.books.finish(record, f"left_{plan.conduct}")
            client.go(by_reset=plan.by_reset)
            return False
        except (ConnectionError, asyncio.IncompleteReadError, RuntimeError):  # the last is uvloop's word for the first
            if said is None:
                return self._unanswered(record)
        assert said is not None
        self.books.finish(record, verdicts.judge(self.books, record, said))
        if plan.calm:
            self.books.figures.calm += 1
            self.books.figures.calm_served += record.outcome == "served"
        return said.whole and (said.header("connection") or "").lower() != "close"

    def _unanswered(self, record: Record) -> bool:
        excused = self.books.closing or record.plan.conduct == "asleep"
        self.books.holds(excused, "every client gets an answer", "its connection ended without one", record.id)
        self.books.finish(record, "unanswered")
        return False

    async def _send(self, client: Patient, plan: Plan) -> None:
        data = _bytes(plan)
        if plan.conduct == "leave_uploading":
            await client.send(data[: -1 - int(plan.moment * (len(plan.body) - 1))])
            await asyncio.sleep(plan.moment * 0.1)  # sleeps: a client that leaves at a random moment
            raise Left
        await client.send(data)

    async def _before_head(self, client: Patient, record: Record) -> None:
        plan = record.plan
        if plan.conduct == "leave_early":
            await asyncio.sleep(plan.moment * 0.2)  # sleeps: a client that leaves at a random moment
            raise Left
        if plan.conduct == "leave_before_head":
            try:
                async with asyncio.timeout(0.5):
                    await record.arrived.wait()
            except TimeoutError:
                pass
            raise Left

    async def _body(self, client: Patient, record: Record, said: Said) -> None:
        plan = record.plan
        leaving, taken = plan.conduct in ("leave_in_stream", "half_read"), 0
        if plan.conduct == "asleep":
            await asyncio.sleep(ASLEEP_S)  # sleeps: a client that takes nothing
        while True:
            if leaving and taken >= (0 if plan.conduct == "half_read" else 1 + int(plan.moment * 3)):
                raise Left
            piece = await _piece(client, said)
            if piece is None or said.whole:
                return
            said.body += piece
            taken += 1
            if plan.conduct == "slow":
                await asyncio.sleep(plan.moment * 0.02)  # sleeps: a slow reader

    # ------------------------------------------------------------ others

    async def garbage(self, chance: random.Random) -> None:
        """Something that is no request, or none that is served. It gets an honest refusal, or the door."""
        data = chance.choice(GARBAGE)
        patient, by_reset = chance.random() < 0.6, chance.random() < 0.5
        try:
            async with asyncio.timeout(PATIENCE_S), Patient(self.port) as client:
                await client.send(data)
                if patient:
                    said = await client.head()
                    honest = said.status >= 400 and said.status != 500
                    self.books.holds(honest, "garbage is refused", f"{said.status} for {data[:60]!r}")
                client.go(by_reset=by_reset)
        except TimeoutError:
            self.books.holds(self.books.closing, "garbage is refused", f"nothing for {data[:60]!r}")
        except (OSError, asyncio.IncompleteReadError):
            pass

    async def question(self, chance: random.Random) -> None:
        """Something that occupies no engine."""
        data = chance.choice(
            (
                request("/v1/models", method="GET"),
                request("/tokenize", b'{"prompt":"a"}'),
                request("/ready", method="GET"),
            )
        )
        self.books.figures.questions += 1
        try:
            async with asyncio.timeout(PATIENCE_S), Patient(self.port) as client:
                await client.send(data)
                said = await client.answer()
                honest = said.whole and said.status in (200, 502, 503, 504)
                self.books.holds(honest or self.books.closing, "questions are answered", f"{said.status} {data[:30]!r}")
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.books.holds(self.books.closing, "questions are answered", f"{type(error).__name__} {data[:30]!r}")


async def _piece(client: Patient, said: Said) -> bytes | None:
    """Some more of a body, None where it ends before it is whole; sets `whole` at its end."""
    if said.header("transfer-encoding") == "chunked":
        piece = await client.chunk()
        said.whole = piece == b""
        return piece
    left = int(said.header("content-length") or 0) - len(said.body)
    if left <= 0:
        said.whole = True
        return b""
    return await client.reader.read(min(left, READ_BYTES)) or None


def _bytes(plan: Plan) -> bytes:
    asked = [f"x-crossover-backend: {plan.asked}"] if plan.asked else []
    return request(plan.sample.target, plan.body, f"x-request-id: {plan.id}", *asked)
