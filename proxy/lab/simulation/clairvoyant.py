"""Control arms that know the length of every answer and what each cache holds: each request goes where it delays least.

Neither is a bound. One reckons with what is there until all of it has ended, and with nothing that comes: right when
little does. The other takes the numbers in flight to stay as they are: right when much does, and GPUs are not shared.
"""

from itertools import pairwise

from proxy.lab.simulation.arms import Arm, Bench, View, chosen_by
from proxy.lab.simulation.pace import Pace
from proxy.lab.simulation.sharing import Station, Task
from proxy.model import BASELINE, ROLES, SPECULATIVE, Placement, Role


def clairvoyants(bench: Bench) -> tuple[Arm, ...]:
    """Those that fit the placement."""
    if bench.placement is Placement.SHARED:
        return (chosen_by("foresight", _choose_shared, bench),)
    return (_foresight(bench), _steady(bench))


def _steady(bench: Bench) -> Arm:
    growing = {role: grown(bench.paces[role]) for role in ROLES}

    def choose(view: View, task: Task) -> Role:
        counts = (view.speculative, view.baseline)
        costs = [
            _steady_s(view.stations[role], task, growing[role], held) for role, held in zip(ROLES, counts, strict=True)
        ]
        return SPECULATIVE if costs[0] <= costs[1] else BASELINE

    return chosen_by("clairvoyant", choose, bench)


def _steady_s(station: Station, task: Task, growing: list[float], held: int) -> float:
    if held >= len(growing):
        return float("inf")
    queued_s = sum(each.unfilled for each in station.filling) / station.bounds.prefill_tokens_per_s
    return queued_s + _prefill_s(station, task) * (held + 1) + task.length * growing[held]


def _prefill_s(station: Station, task: Task) -> float:
    cached = station.cache.held(task.blocks) if task.blocks else 0
    return (task.prompt_tokens - cached) / station.bounds.prefill_tokens_per_s


def _foresight(bench: Bench) -> Arm:
    growing = {role: grown(bench.paces[role]) for role in ROLES}

    def choose(view: View, task: Task) -> Role:
        costs = [added_s(view.stations[role], task, growing[role]) for role in ROLES]
        return SPECULATIVE if costs[0] <= costs[1] else BASELINE

    return chosen_by("foresight", choose, bench)


def grown(pace: Pace) -> list[float]:
    """By how much b d(b), the delay of all for a token each, grows with one more."""
    delay = [0.0, *(batch * pace.seconds_per_token(batch) for batch in range(1, pace.most + 1))]
    return [after - before for before, after in pairwise(delay)]


def added_s(station: Station, task: Task, growing: list[float]) -> float:
    """Seconds that all requests of an engine together take longer with one more, its own included."""
    left = _left(station)
    if len(left) >= len(growing):
        return float("inf")
    wanted = task.length + station.pace.surplus_tokens
    sum_s, reached, batch = _prefill_s(station, task) * (len(left) + 1), 0.0, len(left)
    for tokens in left:
        if tokens >= wanted:
            break
        sum_s += (tokens - reached) * growing[batch]
        reached, batch = tokens, batch - 1
    return sum_s + (wanted - reached) * growing[batch]


def _left(station: Station) -> list[float]:
    """Tokens that each sequence of an engine still wants, the fewest first."""
    left = [ends_at - station.gained for ends_at, _, _ in station.running]
    left += [
        task.length + station.pace.surplus_tokens for tasks in (station.filling, station.waiting) for task in tasks
    ]
    left.sort()
    return left


def _choose_shared(view: View, task: Task) -> Role:
    """Where steps of both take turns the delays of both have to be reckoned together."""
    drafted, plain = (view.stations[role] for role in ROLES)
    left, other = _left(drafted), _left(plain)
    with_it = sorted([*left, task.length + drafted.pace.surplus_tokens])
    beside = sorted([*other, task.length + plain.pace.surplus_tokens])
    if len(left) >= drafted.pace.most or len(other) >= plain.pace.most:
        return SPECULATIVE if len(left) <= len(other) else BASELINE
    there = _total_s(drafted.pace, with_it, plain.pace, other)
    return SPECULATIVE if there <= _total_s(drafted.pace, left, plain.pace, beside) else BASELINE


def _total_s(pace: Pace, left: list[float], other: Pace, beside: list[float]) -> float:
    """Seconds until the end of each sequence, summed, where nothing more comes."""
    total_s = gained = other_gained = 0.0
    at = other_at = 0
    while (batch := len(left) - at) + (other_batch := len(beside) - other_at):
        cycle_s = pace.step_s[batch] + other.step_s[other_batch]
        ends_s = (left[at] - gained) * cycle_s / pace.tokens[batch] if batch else float("inf")
        other_ends_s = (
            (beside[other_at] - other_gained) * cycle_s / other.tokens[other_batch] if other_batch else ends_s
        )
        passed_s = min(ends_s, other_ends_s)
        total_s += passed_s * (batch + other_batch)
        gained += passed_s * pace.tokens[batch] / cycle_s
        other_gained += passed_s * other.tokens[other_batch] / cycle_s
        if batch and ends_s <= other_ends_s:
            at += 1
        else:
            other_at += 1
    return total_s
