"""Whether a conversation stays where most of its prompt is cached: to move it means to compute that anew.

What is cached where is known by state/, and only roughly; eligibility and room come after (policy.py). State that one
engine alone has is no question of worth: such a request goes there or nowhere.
"""

from typing import NamedTuple

from proxy.model import BASELINE, SPECULATIVE, Costs, LoadSnapshot, Policy, Reason, Regime, Role, Traits, Whereabouts
from proxy.routing.demand import BYTES_PER_TOKEN
from proxy.routing.rules import Rules

# A home may cost a tenth more than the other backend. Costs are no more certain than that, and a conversation that
# comes and goes is cached twice.
MARGIN = 0.10

# Where the price of computing a long prompt anew is not known, its home may cost twice as much: on published hardware
# 8,000 tokens take a second, and no speculation wins that back in a turn of some hundred tokens.
TOO_SLOW = 2.0

# Policy `overflow` without curves knows no costs: a long conversation is kept up to so many times leave_at.
OVERFILLED = 2

_AFFINITY = Reason.AFFINITY


class Wait(NamedTuple):
    """What a request that may wait for its home knows of that: since when it has, in seconds, and how many wait before
    it for either backend. One that finds no place in the queue has none of this, and goes where there is room."""

    waited_s: float = 0.0
    for_speculative: int = 0
    for_baseline: int = 0


def settle(
    rules: Rules,
    asked: tuple[Role, Reason],
    where: Whereabouts,
    costs: Costs | None,
    pressed: tuple[int, int],
) -> tuple[Role, Reason]:
    """Who is asked first: the home in `where` while that pays, else whom the policy `asked`.

    `costs` count cached tokens already where the price of computing them is known. `pressed` are the sequences that
    speculative would have with the request, its recent failures with them, and the recent failures of the baseline.
    """
    home = where.home
    if home is None or rules.affinity is None:
        return asked
    long = abs(where.speculative_tokens - where.baseline_tokens) >= rules.affinity.min_cached_tokens
    if costs is None:
        return (home, _AFFINITY) if long and _may_fill(rules, home, pressed) else asked
    here_s, there_s = costs.speculative_s, costs.baseline_s
    if home is BASELINE:
        here_s, there_s = there_s, here_s
    most = 1.0 + MARGIN
    if rules.effective_policy is not Policy.MARGINAL:
        most = TOO_SLOW if long else 0.0
    elif long and not rules.prefill_known:
        most = TOO_SLOW
    return (home, _AFFINITY) if here_s <= most * there_s else asked


def waits(
    rules: Rules,
    regime: Regime,
    snapshot: LoadSnapshot,
    traits: Traits,
    tokens: float,
    *,
    where: Whereabouts,
    wait: Wait | None,
) -> bool:
    """Whether a request whose home is full waits for it, though the other backend has room: while a place there is
    expected sooner than what it costs that the other one reads what only home has cached, and for no longer in all.

    It costs that time to the request and to each of those that run there, which gain no token meanwhile. A place comes
    when one of those in flight ends, each of which takes as long as answers of late at home's speed. Never where the
    other one's prefill is not known.
    """
    home = where.home
    if home is None or wait is None or rules.delays is None:
        return False
    both = rules.delays.at_context(traits.prompt_bytes / BYTES_PER_TOKEN)
    here, there = both if home is SPECULATIVE else (both[1], both[0])
    if there.prefill_tok_s is None:
        return False
    in_flight = max(1, snapshot.of(home).in_flight)
    answer_s = (regime.demand.answer_tokens or tokens) * here.total(in_flight) / in_flight
    before = wait.for_speculative if home is SPECULATIVE else wait.for_baseline
    lost_s = (where.at(home) - where.at(home.other)) / there.prefill_tok_s
    costs_s = lost_s * (1 + snapshot.of(home.other).in_flight)
    return max(wait.waited_s, (before + traits.weight) * answer_s / in_flight) < costs_s


def _may_fill(rules: Rules, home: Role, pressed: tuple[int, int]) -> bool:
    """Whether a backend of unknown speed may take one more long conversation; one that fails fast may not."""
    sequences, baseline_failures = pressed
    return sequences <= OVERFILLED * rules.leave_at if home is SPECULATIVE else not baseline_failures
