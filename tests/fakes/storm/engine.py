"""A fake engine that a storm kills, starts again, and has lie about itself; its books are by request id.

What it makes of an attempt is in fates.py.
"""

import asyncio
import contextlib
import socket
from time import monotonic

import orjson
from fakes.engine import Exchange, FakeEngine, Request, _read
from fakes.storm.books import Attempt, Books, Record
from fakes.storm.fates import FATES, Act, reset

# A page that hangs does so for longer than the proxy's patience with it (0.4 s), and not for ever.
HANG_S = 1.0
# Two attempts, each with one replay on a connection that was closed as it was used again.
MAX_SENDS = 3
NONSENSE = (
    b"",
    b"[]",
    b"not json",
    b'{"loads": [{"num_running_reqs": -5, "num_waiting_reqs": "many"}]}',
    b'{"loads": [{"num_running_reqs": 1e99, "num_waiting_reqs": null, "max_running_requests": 0}]}',
    b'{"loads": {"a": 1}}',
    b"\xff" * 300,
)
QUESTIONS = {"/v1/models": {"object": "list", "data": [{"id": "m"}]}, "/tokenize": {"tokens": [1, 2], "count": 2}}


class StormEngine(FakeEngine):
    """`mood` is how its health page is (honest, denies, hangs, boasts: well it says, and fails everything); `loads` how
    `/v1/loads` is (true, nonsense, hangs, fails). `attempts` are the open ones."""

    def __init__(self, name: str, books: Books, *, role: str = "speculative", limit: int = 16) -> None:
        super().__init__(role=role, max_running_requests=limit)
        self.name = name
        self.books = books
        self.mood = self.loads = "honest"
        self.alive = False
        self.kills = 0
        self.restarted_s: float | None = None
        self.returned = self.recovered = True
        self.attempts: dict[int, Attempt] = {}
        self._writers: set[asyncio.StreamWriter] = set()

    # ------------------------------------------------------------ life

    async def listen(self) -> None:
        """Start on a port that a bound and deaf socket keeps for us while nobody listens."""
        self._connections = set()
        self._keeper = socket.socket()
        self._keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._keeper.bind((self.host, 0))
        self.port = self._keeper.getsockname()[1]
        await self.start()

    async def close(self) -> None:
        await self.kill()
        self._keeper.close()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, self.host, self.port, backlog=4096, reuse_port=True)
        self.alive = True
        self.restarted_s, self.returned, self.recovered = monotonic(), False, False
        self.books.note(self.name, "starts")

    async def kill(self, *, drop: bool = True) -> None:
        """Close the port, and with `drop` every connection."""
        self.alive = False
        self.kills += drop
        self.restarted_s = None
        self.books.note(self.name, f"is killed, {len(self.attempts)} attempts open, connections dropped: {drop}")
        self._server.close()
        if drop:
            for attempt in self.attempts.values():
                attempt.killed = True
            for writer in tuple(self._writers):
                reset(writer)
            await self._all_dropped()

    async def _all_dropped(self) -> None:
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._writers.add(writer)
        try:
            while (request := await _read(reader)) is not None:
                await self._serve(Exchange(request, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, RuntimeError):
            pass  # RuntimeError: uvloop's word for a closed connection whose reading goes on
        finally:
            self._connections.discard(task)
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    # ------------------------------------------------------------ what it answers

    async def _serve(self, exchange: Exchange) -> None:
        path = exchange.request.target.partition("?")[0]
        if path in ("/ready", "/health"):
            return await self._tell_health(exchange)
        if path == "/v1/loads":
            return await self._tell_load(exchange)
        if path == "/server_info":
            return await exchange.answer(orjson.dumps(self._server_info()))
        if path in QUESTIONS:
            return await exchange.answer(orjson.dumps(QUESTIONS[path]))
        return await self._generate(exchange)

    async def _tell_health(self, exchange: Exchange) -> None:
        if self.mood == "hangs":
            await asyncio.sleep(HANG_S)  # sleeps: a page that hangs
        await exchange.answer(b"", "503 Service Unavailable" if self.mood == "denies" else "200 OK")

    async def _tell_load(self, exchange: Exchange) -> None:
        if self.loads == "hangs":
            await asyncio.sleep(HANG_S)  # sleeps: a page that hangs
        if self.loads == "fails":
            return await exchange.answer(b"no", "500 Internal Server Error")
        nonsense = self.loads == "nonsense"
        return await exchange.answer(
            NONSENSE[self.books.next_serial() % len(NONSENSE)] if nonsense else orjson.dumps(self._loads())
        )

    async def _generate(self, exchange: Exchange) -> None:
        record = self._recorded(exchange.request)
        if record is None:
            return await exchange.answer(b'{"error":"unknown"}', "400 Bad Request")
        fate = "reset_before" if self.mood == "boasts" else record.plan.fate(len(record.attempts))
        attempt = Attempt(self.books.next_serial(), self.name, self.url, fate, self.kills)
        self._arrive(record, attempt)
        try:
            return await FATES[fate](Act(exchange, attempt, record.plan))
        finally:
            self.open -= 1
            attempt.open = False
            if attempt.sent and attempt.good and self.restarted_s is not None and not self.recovered:
                self.recovered = True
                self.books.figures.recoveries_s.append(monotonic() - self.restarted_s)
            self.attempts.pop(attempt.serial, None)
            self.books.note(record.id, f"attempt {attempt.serial} ends at {self.name}, {len(attempt.body)} bytes")

    def _recorded(self, request: Request) -> Record | None:
        request_id = request.header("x-request-id") or ""
        record = self.books.recall(request_id)
        known = self.books.holds(
            record, "only requests that live are sent to an engine", f"{request.target} came to {self.name}", request_id
        )
        return record if known else None

    def _arrive(self, record: Record, attempt: Attempt) -> None:
        """Look at the promises that an arrival alone can break."""
        books, figures = self.books, self.books.figures
        books.note(record.id, f"attempt {attempt.serial} arrives at {self.name}, fate {attempt.fate}")
        figures.faults[attempt.fate] += 1
        own = [each for each in record.leases if each.name == self.url]
        books.holds(own, "what an engine is sent has a lease there", f"attempt at {self.name}", record.id)
        # Without a lease that is still open it was sent before, and its bytes come late.
        attempt.leased = any(each.open for each in own)
        retried = record.headed and attempt.leased
        books.holds(not retried, "nothing is retried after commit", f"attempt at {self.name}", record.id)
        same = sum(each.url == self.url for each in record.attempts)
        figures.replays += bool(same)
        figures.failovers += bool(record.attempts) and not same
        record.attempts.append(attempt)
        record.arrived.set()
        figures.most_sends = max(figures.most_sends, len(record.attempts))
        sides = {each.url for each in record.attempts}
        books.holds(len(sides) <= 2, "at most one failover", f"{len(sides)} engines", record.id)
        books.holds(same <= 1, "at most one replay on an engine", f"{same + 1} times at {self.name}", record.id)
        sends = len(record.attempts)
        books.holds(sends <= MAX_SENDS, "at most one failover, and one replay each", f"{sends} times", record.id)
        self.open += 1
        self.attempts[attempt.serial] = attempt
