"""Which requests are sent to learn from: few, cheap, and by count."""

from itertools import pairwise
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from proxy.model import BASELINE, SPECULATIVE, Because, Costs, Decision, Policy, Reason, Regime, Role, Traits
from proxy.routing.demand import BYTES_PER_TOKEN, MAX_PROMPT_TOKENS
from proxy.routing.probing import CHEAP_S, DEAR_S, FRESH_S, MOST_PROMPTS, MOST_REGRET, SHORT_TOKENS, Probes

ONE = Traits(prompt_bytes=4096)


def decided(speculative_s: float = 1.0, baseline_s: float = 1.0, reason: Reason = Reason.CHEAPER) -> Decision:
    role = SPECULATIVE if speculative_s < baseline_s else BASELINE
    costs = Costs(speculative_s, baseline_s)
    because = Because(Policy.MARGINAL, 0, 0, 0.0, 5, 9, SPECULATIVE, 0, costs)
    return Decision(role, reason, Regime(), because)


def stale(probes: Probes, now_s: float, *fresh: Role) -> None:
    probes.look({role: now_s if role in fresh else None for role in (SPECULATIVE, BASELINE)}, now_s)


def test_a_backend_that_was_never_seen_is_asked_where_it_is_cheap() -> None:
    probes = Probes(0.0)
    stale(probes, 0.0, BASELINE)
    assert probes.asks(decided(1.0 + 0.9 * MOST_REGRET, 1.0), ONE, 0.0)
    assert not probes.asks(decided(1.0 + 1.1 * MOST_REGRET, 1.0), ONE, 0.0)


def test_a_backend_that_was_seen_lately_is_not_asked() -> None:
    probes = Probes(1000.0)
    probes.look({SPECULATIVE: 1000.0 - 0.9 * FRESH_S, BASELINE: 1000.0}, 1000.0)
    assert not probes.asks(decided(), ONE, 0.0)
    probes.look({SPECULATIVE: 1000.0 - 1.1 * FRESH_S, BASELINE: 1000.0}, 1000.0)
    assert probes.asks(decided(), ONE, 0.0)


def test_wishes_heavy_requests_and_unknown_costs_are_left_alone() -> None:
    probes = Probes(0.0)
    stale(probes, 0.0)
    assert not probes.asks(decided(reason=Reason.HEADER), ONE, 0.0)
    assert not probes.asks(decided(), Traits(weight=2), 0.0)
    assert not probes.asks(decided()._replace(because=decided().because._replace(costs=None)), ONE, 0.0)
    assert not probes.asks(decided(inf, inf), ONE, 0.0)
    assert probes.asks(decided(), ONE, 0.0)


def test_no_more_than_one_request_in_a_hundred_is_a_probe_from_the_fivehundredth_on() -> None:
    probes = Probes(0.0)
    for number in range(1, 20_001):
        stale(probes, 1e6 * number)  # always due
        decision = decided()
        if probes.asks(decision, ONE, 0.0):
            assert decision.role is not None
            probes.sent(decision.role.other, 1e6 * number)
        if number >= 500:
            assert probes.spent <= 0.01 * number
    assert probes.spent > 100


def test_a_dear_backend_is_asked_with_two_requests_ever_more_seldom() -> None:
    probes, asked = Probes(0.0), []
    for second in range(10 * 3600):
        now_s = float(second)
        stale(probes, now_s, BASELINE)
        for _ in range(5):
            if probes.asks(decided(3.0, 1.0), ONE, 0.0):
                probes.sent(SPECULATIVE, now_s)
                asked.append(now_s)
    assert asked[0] == DEAR_S
    assert asked[0::2] == asked[1::2]
    waits = [later - before for before, later in pairwise(asked[0::2])]
    assert waits == [DEAR_S * 2.0**power for power in range(len(waits))]
    assert len(waits) >= 5


def test_a_backend_that_turned_out_another_is_asked_soon_again() -> None:
    probes = Probes(0.0)
    probes.waits[SPECULATIVE].cheap_s = 600.0
    probes.moved(SPECULATIVE)
    assert probes.waits[SPECULATIVE].cheap_s == CHEAP_S


@given(tokens=st.floats(0.0, 1e8), mean_tokens=st.floats(0.0, 1e8), dear=st.booleans())
def test_no_request_with_a_long_prompt_is_a_probe(tokens: float, mean_tokens: float, dear: bool) -> None:
    probes = Probes(0.0)
    stale(probes, 2 * DEAR_S if dear else 0.0)
    asked = probes.asks(decided(), Traits(prompt_bytes=int(tokens * BYTES_PER_TOKEN)), mean_tokens)
    if tokens > MAX_PROMPT_TOKENS + 1.0 or tokens > max(SHORT_TOKENS, MOST_PROMPTS * mean_tokens) + 1.0:
        assert not asked
    if tokens <= min(mean_tokens, MAX_PROMPT_TOKENS) or tokens <= SHORT_TOKENS:
        assert asked
