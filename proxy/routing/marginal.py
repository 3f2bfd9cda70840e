"""Policy `marginal`: a request goes where it adds the least delay, its own and that of all others, by measured curves.

For backends with GPUs of their own: what one runs does not slow the other. It has no memory, so no regime and no dwell,
and it knows no limits: eligibility and room come after (policy.py).
"""

from proxy.model import BASELINE, NO_DEMAND, NOWHERE, SPECULATIVE, Costs, Demand, Reason, Role, Traits, Whereabouts
from proxy.routing.buckets import Buckets
from proxy.routing.delays import Delays
from proxy.routing.demand import BYTES_PER_TOKEN, unread
from proxy.routing.outlook import outlook
from proxy.routing.rules import Goals

# What one sequence is expected to generate where the caller does not say: as long as the mean of published traces.
EXPECTED_TOKENS = 256.0

# A second beyond a goal weighs as ten of mere delay: it is kept where any backend can, and others are not held up
# without end where none can.
LATE_COUNTS = 10.0

_CHEAPER = Reason.CHEAPER


def answer_tokens(traits: Traits, expected_tokens: float) -> float:
    """What one sequence of a request is expected to generate: as much as others of its route, within its own limit."""
    limit = traits.max_tokens
    return expected_tokens if limit is None or limit > expected_tokens else float(limit)


def costs(
    tables: Buckets[Delays],
    traits: Traits,
    tokens: float,
    in_flight: tuple[int, int],
    baseline_failures: int,
    *,
    demand: Demand = NO_DEMAND,
    goals: Goals | None = None,
    where: Whereabouts = NOWHERE,
) -> Costs:
    """What a request would add beside so many sequences on each backend, speculative first and with its recent failures
    in it; each of its own is expected to generate `tokens`.

    While the prompt is read none of them gains a token: that is added where the prefill of both is known, for as many
    tokens as are not cached there (`where`). Lateness against `goals` is added too.
    """
    speculative, baseline = in_flight
    first, second = tables.at_context(traits.prompt_bytes / BYTES_PER_TOKEN)
    weight = traits.weight
    baseline += baseline_failures
    ahead, beside = outlook(first, second, demand)
    first_s, second_s = tokens * ahead.added(speculative, weight), tokens * beside.added(baseline, weight)
    if first.prefill_tok_s is not None and second.prefill_tok_s is not None:
        first_s += unread(traits, where[0]) / first.prefill_tok_s * ahead.stopped(speculative + weight)
        second_s += unread(traits, where[1]) / second.prefill_tok_s * beside.stopped(baseline + weight)
    if goals is not None:
        first_s += lateness_s(goals, first, speculative + weight, traits, tokens, cached=where[0])
        second_s += lateness_s(goals, second, baseline + weight, traits, tokens, cached=where[1])
    return Costs(
        first_s,
        second_s,
        first.curve.extrapolated(speculative + weight) or second.curve.extrapolated(baseline + weight),
        baseline_failures,
    )


def lateness_s(
    goals: Goals, delays: Delays, in_flight: int, traits: Traits, tokens: float, *, cached: int = 0
) -> float:
    """How much later than `goals` a request is predicted to be on a backend that then has `in_flight` sequences, in
    seconds times LATE_COUNTS. The first token comes a step after the prefill, as far as that is known."""
    step_s, late_s = delays.total(in_flight) / in_flight, 0.0
    if goals.ttft_s is not None:
        prefill_s = 0.0 if delays.prefill_tok_s is None else unread(traits, cached) / delays.prefill_tok_s
        late_s += max(0.0, prefill_s + step_s - goals.ttft_s)
    if goals.tpot_s is not None:
        late_s += max(0.0, step_s - goals.tpot_s) * tokens
    return LATE_COUNTS * late_s


def prefer(told: Costs) -> tuple[Role, Reason]:
    """The backend with the smaller cost; baseline of equal ones, which speculation gains nothing on."""
    return (SPECULATIVE if told.speculative_s < told.baseline_s else BASELINE), _CHEAPER
