"""How many sequences are in flight on each backend: the number every decision hangs on.

A lease raises one book and lowers the same book exactly once, however its request ends. Deciding is not here
(routing/), nor is what an ending means to the breaker (dispatch.py). Nothing here awaits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from types import TracebackType

from proxy.errors import CrossoverError
from proxy.model import Outcome

# Weight of the newest finished request in the mean duration: the last ten or so requests decide it. It only sizes the
# linger on engines that decode on for clients that have left, so it need not be exact.
DURATION_WEIGHT = 0.1

_NEVER_S = float("inf")
_FINISHED = Outcome.FINISHED


class LeaseError(CrossoverError):
    """A lease was settled twice, or by nobody: a defect of the proxy, never of a request."""

    code = "lease_error"


@dataclass(frozen=True, slots=True)
class Counts:
    """One book at one instant. `in_flight` includes `lingering`; both are sequences, `requests` are leases."""

    in_flight: int
    lingering: int
    requests: int
    oldest_s: float


class Book:
    """The sequences of one backend. It outlives a reload that drops the backend, until its last lease is settled."""

    __slots__ = (
        "_leases",
        "_lingering",
        "in_flight",
        "lingering",
        "name",
        "next_expiry_s",
        "opened",
        "settled",
        "typical_duration_s",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.in_flight = 0
        self.lingering = 0
        self.opened = 0
        self.settled = 0
        self.typical_duration_s = 0.0
        self.next_expiry_s = _NEVER_S
        """When the next lingering sequence is dropped (monotonic seconds); infinity when none lingers."""
        # In the order in which they were opened. An OrderedDict would find the oldest in 0.1 us whatever was settled
        # before it, where a dict takes up to 8 us among 10,000 that take equally long. Answers differ too much for it
        # to come to that, and opening and settling would cost 7 % more.
        self._leases: dict[Lease, None] = {}
        self._lingering: list[tuple[float, int]] = []

    def counts(self, now_s: float) -> Counts:
        """The book's numbers at `now_s`; `oldest_s` is the age of the oldest lease, 0 when there is none."""
        self.expire(now_s)
        return Counts(self.in_flight, self.lingering, self.requests, now_s - self.oldest_at_s(now_s))

    @property
    def requests(self) -> int:
        """Leases that are not settled."""
        return len(self._leases)

    def oldest_at_s(self, now_s: float) -> float:
        """When the oldest of them was opened; `now_s` where there is none."""
        return next(iter(self._leases)).opened_at_s if self._leases else now_s

    def expire(self, now_s: float) -> int:
        """Drop lingering sequences whose time is over; returns how many were dropped."""
        if now_s < self.next_expiry_s:
            return 0
        dropped = 0
        while self._lingering and self._lingering[0][0] <= now_s:
            dropped += heappop(self._lingering)[1]
        self.lingering -= dropped
        self.in_flight -= dropped
        self.next_expiry_s = self._lingering[0][0] if self._lingering else _NEVER_S
        return dropped

    def _settle(self, lease: "Lease", now_s: float, linger_s: float, most: int | None) -> None:
        del self._leases[lease]
        self.settled += 1
        stays = self._linger(lease.weight, now_s + linger_s, most) if linger_s > 0 else 0
        self.in_flight -= lease.weight - stays
        if lease.outcome is _FINISHED:
            weight = DURATION_WEIGHT if self.typical_duration_s else 1.0
            self.typical_duration_s += weight * (now_s - lease.opened_at_s - self.typical_duration_s)

    def _linger(self, weight: int, until_s: float, most: int | None) -> int:
        """Let `weight` sequences linger as far as `most` allows; returns how many do."""
        stays = weight if most is None else min(weight, max(0, most - self.lingering))
        if stays:
            self.lingering += stays
            heappush(self._lingering, (until_s, stays))
            self.next_expiry_s = self._lingering[0][0]
        return stays


class Lease:
    """The right of one request to `weight` sequences of one backend, from `open` to `settle`.

    As a context manager it settles itself as failed before commit when its block ends and nobody has settled it.
    """

    __slots__ = ("_clock", "book", "opened_at_s", "outcome", "weight")

    def __init__(self, book: Book, weight: int, clock: Callable[[], float]) -> None:
        self.book = book
        self.weight = weight
        self.outcome: Outcome | None = None
        self._clock = clock
        self.opened_at_s = clock()
        book._leases[self] = None
        book.in_flight += weight
        book.opened += 1

    def settle(self, outcome: Outcome, linger_s: float = 0.0, *, most: int | None = None) -> None:
        """End the lease; its sequences still count for `linger_s` more, as far as no more than `most` linger on its
        book. Raises LeaseError the second time."""
        if self.outcome is not None:
            raise LeaseError(f"a lease that ended as {self.outcome} was settled again as {outcome}")
        self.outcome = outcome
        self.book._settle(self, self._clock(), linger_s, most)

    def __enter__(self) -> "Lease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.outcome is None:
            self.settle(Outcome.FAILED_BEFORE_COMMIT)


class Ledger:
    """All books. `clock` returns monotonic seconds and is the ledger's only view of time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._books: list[Book] = []
        self._retired: list[Book] = []

    def add(self, name: str) -> Book:
        """The book for the engine called `name`: a new one, or its retired one where that still has sequences in
        flight, since the engine still runs them."""
        self._drop_empty()
        book = next((each for each in self._retired if each.name == name), None)
        if book is None:
            book = Book(name)
        else:
            self._retired.remove(book)
        self._books.append(book)
        return book

    def retire(self, book: Book) -> None:
        """Take a book out of use; leases that it still has go on counting on it until they are settled."""
        self._books.remove(book)
        self._retired.append(book)

    def open(self, book: Book, weight: int) -> Lease:
        """Lease `weight` sequences (at least 1) of `book`, counted from this call on."""
        if weight < 1:
            raise LeaseError(f"a lease needs at least one sequence, not {weight}")
        return Lease(book, weight, self._clock)

    @property
    def books(self) -> tuple[Book, ...]:
        """The books in use, then the retired ones that still have sequences in flight."""
        self._drop_empty()
        return (*self._books, *self._retired)

    def _drop_empty(self) -> None:
        now_s = self._clock()
        for book in self._retired:
            book.expire(now_s)
        self._retired = [book for book in self._retired if book.in_flight]
