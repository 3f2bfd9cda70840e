"""The books: what is in flight is what was leased and not settled, whatever the order of things."""

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.model import Outcome
from proxy.state.ledger import Book, Lease, LeaseError, Ledger


class Clock:
    def __init__(self, now_s: float = 100.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(clock: Clock) -> Ledger:
    return Ledger(clock)


def test_a_lease_counts_its_weight_until_it_is_settled(ledger: Ledger) -> None:
    book = ledger.add("a")
    lease = ledger.open(book, 16)
    assert book.in_flight == 16
    lease.settle(Outcome.FINISHED)
    assert book.in_flight == 0


def test_a_lease_below_one_sequence_is_refused(ledger: Ledger) -> None:
    book = ledger.add("a")
    with pytest.raises(LeaseError, match="at least one"):
        ledger.open(book, 0)
    assert book.in_flight == 0


@pytest.mark.parametrize("outcome", Outcome)
def test_settling_twice_raises_and_changes_nothing(ledger: Ledger, outcome: Outcome) -> None:
    book = ledger.add("a")
    other, lease = ledger.open(book, 3), ledger.open(book, 2)
    lease.settle(outcome)
    with pytest.raises(LeaseError, match="settled again"):
        lease.settle(Outcome.FINISHED)
    assert (book.in_flight, lease.outcome) == (other.weight, outcome)


def test_a_lease_settles_itself_when_its_block_ends(ledger: Ledger) -> None:
    book = ledger.add("a")
    with pytest.raises(RuntimeError), ledger.open(book, 2) as lease:
        raise RuntimeError
    assert (book.in_flight, lease.outcome) == (0, Outcome.FAILED_BEFORE_COMMIT)


def test_a_block_leaves_a_settled_lease_alone(ledger: Ledger) -> None:
    book = ledger.add("a")
    with ledger.open(book, 2) as lease:
        lease.settle(Outcome.FINISHED)
    assert (book.settled, lease.outcome) == (1, Outcome.FINISHED)


def test_lingering_sequences_count_until_their_time_is_over(ledger: Ledger, clock: Clock) -> None:
    book = ledger.add("a")
    ledger.open(book, 2).settle(Outcome.CLIENT_GONE_WAITING, linger_s=5.0)
    clock.now_s += 4.999
    counts = book.counts(clock())
    assert (counts.in_flight, counts.lingering, counts.requests) == (2, 2, 0)
    clock.now_s += 0.001
    assert book.counts(clock()).in_flight == 0


def test_lingering_sequences_end_each_at_its_own_time(ledger: Ledger, clock: Clock) -> None:
    book = ledger.add("a")
    for linger_s, weight in ((3.0, 4), (1.0, 1), (2.0, 2)):
        ledger.open(book, weight).settle(Outcome.CLIENT_GONE_WAITING, linger_s)
    assert [book.expire(clock() + after_s) for after_s in (0.5, 1.0, 2.5, 3.0)] == [0, 1, 2, 4]
    assert book.next_expiry_s == float("inf")


def test_the_age_is_that_of_the_oldest_lease(ledger: Ledger, clock: Clock) -> None:
    book = ledger.add("a")
    first = ledger.open(book, 1)
    clock.now_s += 10
    second = ledger.open(book, 1)
    clock.now_s += 5
    assert book.counts(clock()).oldest_s == 15
    first.settle(Outcome.FINISHED)
    assert book.counts(clock()).oldest_s == 5
    second.settle(Outcome.FINISHED)
    assert book.counts(clock()).oldest_s == 0


def test_the_typical_duration_is_the_first_ones_and_then_follows(ledger: Ledger, clock: Clock) -> None:
    book = ledger.add("a")
    for duration_s in (20.0, 30.0):
        lease = ledger.open(book, 1)
        clock.now_s += duration_s
        lease.settle(Outcome.FINISHED)
    assert book.typical_duration_s == pytest.approx(21.0)


def test_only_finished_requests_say_how_long_one_takes(ledger: Ledger, clock: Clock) -> None:
    book = ledger.add("a")
    for outcome in set(Outcome) - {Outcome.FINISHED}:
        lease = ledger.open(book, 1)
        clock.now_s += 7
        lease.settle(outcome)
    assert book.typical_duration_s == 0


def test_a_retired_book_counts_on_until_its_last_lease_ends(ledger: Ledger) -> None:
    old = ledger.add("a")
    lease = ledger.open(old, 3)
    ledger.retire(old)
    new = ledger.add("b")
    assert list(ledger.books) == [new, old]
    lease.settle(Outcome.FINISHED)
    assert old.in_flight == 0
    assert list(ledger.books) == [new]


def test_a_retired_book_waits_for_what_lingers(ledger: Ledger, clock: Clock) -> None:
    old = ledger.add("a")
    ledger.open(old, 1).settle(Outcome.CLIENT_GONE_WAITING, linger_s=2.0)
    ledger.retire(old)
    assert list(ledger.books) == [old]
    clock.now_s += 2.0
    assert not ledger.books


def test_an_engine_that_comes_back_is_counted_on_its_old_book(ledger: Ledger) -> None:
    """Case H8: 20 streams run, their backend is dropped and taken in again, 5 more come; then the 20 end."""
    book = ledger.add("a")
    old = [ledger.open(book, 1) for _ in range(20)]
    ledger.retire(book)
    again = ledger.add("a")
    new = [ledger.open(again, 1) for _ in range(5)]
    assert again.in_flight == 25
    for lease in old:
        lease.settle(Outcome.FINISHED)
    assert again.in_flight == 5
    for lease in new:
        lease.settle(Outcome.FINISHED)
    assert (again.in_flight, list(ledger.books)) == (0, [again])


def test_an_emptied_book_is_not_taken_up_again(ledger: Ledger) -> None:
    book = ledger.add("a")
    ledger.retire(book)
    assert not ledger.books
    assert ledger.add("a") is not book


@dataclass
class Shelf:
    """What a book should hold: leases by hand, and (expiry, weight) of what lingers."""

    book: Book
    leases: list[Lease] = field(default_factory=list)
    lingering: list[tuple[float, int]] = field(default_factory=list)
    retired: bool = False

    def in_flight(self, now_s: float) -> int:
        return sum(lease.weight for lease in self.leases) + self.lingers(now_s)

    def lingers(self, now_s: float) -> int:
        return sum(weight for expiry_s, weight in self.lingering if expiry_s > now_s)


LINGERS = st.one_of(st.just(0.0), st.floats(0.001, 50))


class Books(RuleBasedStateMachine):
    """Any order of opening, settling, lingering, waiting, retiring and coming back keeps every count exact."""

    @initialize()
    def begin(self) -> None:
        self.clock = Clock()
        self.ledger = Ledger(self.clock)
        self.shelves = [Shelf(self.ledger.add(name)) for name in ("a", "b")]
        self.ended: list[Lease] = []

    def alive(self) -> list[Shelf]:
        return [shelf for shelf in self.shelves if not shelf.retired]

    def loaded(self) -> list[Shelf]:
        return [shelf for shelf in self.shelves if shelf.leases]

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), weight=st.integers(1, 1024))
    def open(self, data: st.DataObject, weight: int) -> None:
        shelf = data.draw(st.sampled_from(self.alive()))
        shelf.leases.append(self.ledger.open(shelf.book, weight))

    @precondition(lambda self: self.loaded())
    @rule(data=st.data(), outcome=st.sampled_from(Outcome), linger_s=LINGERS)
    def settle(self, data: st.DataObject, outcome: Outcome, linger_s: float) -> None:
        shelf = data.draw(st.sampled_from(self.loaded()))
        lease = shelf.leases.pop(data.draw(st.integers(0, len(shelf.leases) - 1)))
        lease.settle(outcome, linger_s)
        if linger_s:
            shelf.lingering.append((self.clock() + linger_s, lease.weight))
        self.ended.append(lease)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def settle_again(self, data: st.DataObject) -> None:
        with pytest.raises(LeaseError):
            data.draw(st.sampled_from(self.ended)).settle(Outcome.FINISHED, 1.0)

    @rule(seconds=st.floats(0, 30))
    def wait(self, seconds: float) -> None:
        self.clock.now_s += seconds

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def retire_and_replace(self, data: st.DataObject) -> None:
        shelf = data.draw(st.sampled_from(self.alive()))
        self.ledger.retire(shelf.book)
        shelf.retired = True
        name = data.draw(st.sampled_from(sorted({"a", "b", "c"} - {each.book.name for each in self.alive()})))
        book = self.ledger.add(name)
        known = next((each for each in self.shelves if each.book is book), None)
        if known is None:
            self.shelves.append(Shelf(book))
        else:
            known.retired = False

    @invariant()
    def counts_are_exact(self) -> None:
        now_s = self.clock()
        for shelf in self.shelves:
            counts = shelf.book.counts(now_s)
            assert counts.in_flight == shelf.in_flight(now_s) >= 0
            assert counts.lingering == shelf.lingers(now_s) >= 0
            assert counts.requests == len(shelf.leases) == shelf.book.opened - shelf.book.settled

    @invariant()
    def a_book_is_listed_while_it_counts(self) -> None:
        listed = {id(book) for book in self.ledger.books}
        now_s = self.clock()
        wanted = {id(shelf.book) for shelf in self.shelves if not shelf.retired or shelf.in_flight(now_s)}
        assert listed == wanted


TestBooks = Books.TestCase
