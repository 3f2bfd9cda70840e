"""Policy `marginal`: a request goes where it adds the least delay, its own and that of all others, by measured curves.

For backends with GPUs of their own: what one runs does not slow the other. It has no memory, so no regime and no dwell,
and it knows no limits: eligibility and room come after (policy.py).
"""

from proxy.model import BASELINE, SPECULATIVE, Costs, Reason, Role, Traits
from proxy.routing.delays import DelayTables

# The length of an answer that nothing is known of, tokens: what chat and code both lie around in published traces.
EXPECTED_TOKENS = 256.0

# Bytes of a request's body for a token of its context: English and code in JSON. It only picks a bucket.
BYTES_PER_TOKEN = 4.0

_CHEAPER = Reason.CHEAPER


def costs(tables: DelayTables, traits: Traits, speculative: int, baseline: int, baseline_failures: int) -> Costs:
    """What a request would add beside so many sequences on each backend; `speculative` holds the recent failures."""
    first, second = tables.at_context(traits.prompt_bytes / BYTES_PER_TOKEN)
    weight, tokens = traits.weight, EXPECTED_TOKENS
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
