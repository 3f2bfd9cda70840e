"""Refusals and failures are told once a burst, with their count when it is over, and what clients did wrong is not."""

from proxy.errors import CrossoverError, InvalidRequest, Side
from proxy.metrics import RoleTotals, Totals
from proxy.watch.bursts import QUIET_S, Bursts
from proxy.watch.journal import Entry

NOTHING = RoleTotals(0, 0, 0.0, 0, 0.0, 0)


class Counted:
    """Totals that grow, and what a burst tells of them second by second."""

    def __init__(self) -> None:
        self.failed: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self.broken = 0
        self.at_s = 0.0
        self.bursts = Bursts(self.totals())

    def totals(self) -> Totals:
        failed, refused = dict(self.failed), dict(self.refused)
        return Totals(NOTHING, NOTHING, sum(failed.values()), sum(refused.values()), self.broken, failed, refused)

    def second(self, *, refused: int = 0, failed: int = 0, broken: int = 0, code: str = "queue_full") -> list[Entry]:
        self.at_s += 1.0
        if refused:
            self.refused[code] = self.refused.get(code, 0) + refused
        if failed:
            self.failed["backend_broken"] = self.failed.get("backend_broken", 0) + failed
        self.broken += broken
        return list(self.bursts.look(self.totals(), self.at_s))

    def quiet(self) -> list[Entry]:
        return [entry for _ in range(int(QUIET_S)) for entry in self.second()]


def test_a_burst_of_refusals_is_told_when_it_begins_and_with_its_count_when_it_is_over() -> None:
    counted = Counted()
    [began] = counted.second(refused=7)
    assert (began.kind, began.sentence) == ("refusals", "Requests begin to be refused: 7 requests so far (queue_full).")
    assert [entry for _ in range(30) for entry in counted.second(refused=18)] == []
    assert counted.second(refused=4, code="queue_timeout") == []
    [over] = counted.quiet()
    assert over.kind == "refusals_over"
    assert over.sentence == (
        "No more requests are refused: it was 551 requests within 31 s (queue_full 547, queue_timeout 4)."
    )
    assert over.numbers == {"count": 551, "lasted_s": 31.0, "queue_full": 547, "queue_timeout": 4}
    assert counted.quiet() == []
    assert [entry.kind for entry in counted.second(refused=1)] == ["refusals"]


def test_failures_tell_how_many_answers_broke_off() -> None:
    counted = Counted()
    [began] = counted.second(failed=5, broken=4)
    assert began.sentence == (
        "Requests begin to fail: 5 requests so far (backend_broken), 4 of them in the midst of the answer."
    )
    [over] = counted.quiet()
    assert over.sentence.endswith(
        "it was 5 requests within 1 s (backend_broken), 4 of them in the midst of the answer."
    )


def test_pauses_shorter_than_the_quiet_are_one_burst() -> None:
    counted = Counted()
    told = [entry for number in range(60) for entry in counted.second(failed=int(number % 10 == 0))]
    assert [entry.kind for entry in told] == ["failures"]


def test_what_clients_did_wrong_is_not_told() -> None:
    counted = Counted()

    def below(kind: type[CrossoverError]) -> list[type[CrossoverError]]:
        return [kind, *(each for child in kind.__subclasses__() for each in below(child))]

    for kind in below(InvalidRequest):
        assert kind.side is Side.CLIENT
        assert counted.second(refused=1, code=kind.code) == []
