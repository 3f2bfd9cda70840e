"""Access logs that nobody wrote: requests as settled facts, put into lines by the product's own log."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

from proxy import logs
from proxy.model import Because, Decision, Outcome, Policy, Reason, Regime, RequestFacts, Role, Traits, Usage

BEGAN = datetime(2026, 11, 30, 4, 0, 0, tzinfo=UTC)
BECAUSE = Because(Policy.OVERFLOW, 1, 2, 3.0, 5, 9, Role.SPECULATIVE)
DECISION = Decision(Role.SPECULATIVE, Reason.ROOM, Regime(), BECAUSE)
FACTS = RequestFacts(
    request_id="0123456789abcdef",
    route="/v1/chat/completions",
    method="POST",
    outcome=Outcome.FINISHED,
    status=200,
    decision=DECISION,
    traits=Traits(stream=True, prompt_bytes=1600),
    duration_s=2.0,
    ttft_s=0.2,
    tpot_s=0.01,
    usage=Usage(400, 100),
)


def sent_to(role: Role, policy: Policy = Policy.OVERFLOW, reason: Reason = Reason.ROOM) -> Decision:
    return Decision(role, reason, Regime(), BECAUSE._replace(policy=policy))


def line(facts: RequestFacts = FACTS, came_s: float = 0.0) -> bytes:
    """The line of a request that came so many seconds after BEGAN."""
    return logs.request_line(facts, BEGAN + timedelta(seconds=came_s + facts.duration_s))


def traffic(count: int, rate_per_s: float, *, seed: int = 1, tokens: float = 100.0) -> Iterator[bytes]:
    """Lines of so many requests that came at random, each of which ran by itself at 50 tok/s."""
    rng, at_s = Random(seed), 0.0
    for _ in range(count):
        at_s += rng.expovariate(rate_per_s)
        length = max(1, round(rng.expovariate(1.0 / tokens)))
        took_s = 0.2 + length / 50
        yield line(FACTS._replace(duration_s=took_s, usage=Usage(400, length)), at_s)
