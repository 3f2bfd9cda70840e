"""Policy `marginal`: a request goes where it adds the least delay, its own and that of all others, by measured curves.

For backends with GPUs of their own: what one runs does not slow the other. It has no memory, so no regime and no dwell,
and it knows no limits: eligibility and room come after (policy.py).
"""

from proxy.model import BASELINE, SPECULATIVE, Costs, Reason, Role, Traits
from proxy.routing.buckets import Buckets
from proxy.routing.delays import Delays

# What one sequence is expected to generate where the caller does not say: as long as the mean of published traces.
EXPECTED_TOKENS = 256.0

# Bytes of a request's body for a token of its context: English and code in JSON. It only picks a bucket.
BYTES_PER_TOKEN = 4.0

_CHEAPER = Reason.CHEAPER


def answer_tokens(traits: Traits, expected_tokens: float) -> float:
    """What one sequence of a request is expected to generate: as much as others of its route, within its own limit."""
    limit = traits.max_tokens
    return expected_tokens if limit is None or limit > expected_tokens else float(limit)


def costs(
    tables: Buckets[Delays], traits: Traits, tokens: float, in_flight: tuple[int, int], baseline_failures: int
) -> Costs:
    """What a request would add beside so many sequences on each backend, speculative first and with its recent failures
    in it; each of its own is expected to generate `tokens`."""
    speculative, baseline = in_flight
    first, second = tables.at_context(traits.prompt_bytes / BYTES_PER_TOKEN)
    weight = traits.weight
    baseline += baseline_failures
    return Costs(
        tokens * first.added(speculative, weight),
        tokens * second.added(baseline, weight),
        first.curve.extrapolated(speculative + weight) or second.curve.extrapolated(baseline + weight),
        baseline_failures,
    )


def prefer(told: Costs) -> tuple[Role, Reason]:
    """The backend with the smaller cost; baseline of equal ones, which speculation gains nothing on."""
    return (SPECULATIVE if told.speculative_s < told.baseline_s else BASELINE), _CHEAPER
