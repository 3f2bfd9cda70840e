"""Decisions, endings and states of every kind, drawn at random, for what is put into words."""

from hypothesis import strategies as st

from proxy.model import (
    Because,
    Costs,
    Decision,
    DecisionRecord,
    Outcome,
    Policy,
    Reason,
    Regime,
    RequestFacts,
    Role,
    Traits,
    Usage,
)
from proxy.telling import Favour, Lately, Present, Running, Side

ODD = (float("inf"), float("nan"))
COUNTS = st.integers(0, 100_000)
SECONDS = st.floats(0, 1e6)
COSTS = st.builds(Costs, SECONDS | st.sampled_from(ODD), SECONDS | st.sampled_from(ODD), st.booleans(), COUNTS)
OUT = st.sampled_from((None, "draining", "down", "circuit open", "silent", "full", "ramping"))
BECAUSE = st.builds(
    Because,
    st.sampled_from(Policy),
    COUNTS,
    COUNTS,
    st.none() | st.floats(0, 1e5),
    st.none() | COUNTS,
    st.none() | COUNTS,
    st.none() | st.sampled_from(Role),
    recent_failures=st.integers(0, 9),
    costs=st.none() | COSTS,
    speculative_cached=COUNTS,
    baseline_cached=COUNTS,
    learned=st.booleans(),
    speculative_out=OUT,
    baseline_out=OUT,
)
DECISIONS = st.builds(Decision, st.none() | st.sampled_from(Role), st.sampled_from(Reason), st.just(Regime()), BECAUSE)
RECORDS = st.builds(
    DecisionRecord,
    SECONDS,
    st.just("id"),
    st.just("/v1/chat/completions"),
    st.integers(1, 1000),
    st.integers(1, 2),
    DECISIONS,
)
TRAITS = st.builds(
    Traits,
    weight=st.integers(1, 1000),
    stream=st.booleans(),
    prompt_bytes=COUNTS,
    constrained=st.booleans(),
    session=st.booleans(),
    max_tokens=st.none() | COUNTS,
)
FACTS = st.builds(
    RequestFacts,
    request_id=st.just("id"),
    route=st.just("/v1/chat/completions"),
    method=st.just("POST"),
    outcome=st.sampled_from(Outcome),
    status=st.sampled_from((200, 400, 499, 503)),
    decision=st.none() | DECISIONS,
    traits=TRAITS,
    attempts=st.integers(0, 4),
    failure=st.sampled_from((None, "queue_full", "backend_silent", "never_heard_of")),
    first_failure=st.sampled_from((None, "connect_timeout", "backend_silent")),
    duration_s=SECONDS,
    queue_s=SECONDS,
    overhead_s=SECONDS,
    ttft_s=st.none() | SECONDS,
    tpot_s=st.none() | SECONDS,
    usage=st.builds(Usage, COUNTS, COUNTS, COUNTS),
    backend_out=st.sampled_from((None, "down", "silent")),
    silent_s=st.none() | SECONDS,
)
SIDES = {role: st.builds(Side, st.just(role), COUNTS, st.none() | COUNTS, OUT | st.just("trial")) for role in Role}
FAVOURS = st.builds(
    Favour,
    st.sampled_from((None, "trial", "little", "dwell", "due", "cost", "past")),
    st.none() | SECONDS,
)


@st.composite
def latelies(draw: st.DrawFn) -> Lately:
    """What some latest requests did, forced ones among them or not."""
    requests = draw(st.integers(1, 100))
    speculative = draw(st.integers(0, requests))
    if draw(st.booleans()):
        return Lately(requests, speculative)
    forced = draw(st.integers(1, requests))
    return Lately(requests, speculative, draw(st.sampled_from(Reason)), forced, draw(st.integers(0, forced)))


PRESENTS = st.builds(
    Present,
    policy=st.sampled_from(Policy),
    speculative=SIDES[Role.SPECULATIVE],
    baseline=SIDES[Role.BASELINE],
    phase=st.sampled_from(("starting", "serving", "settling", "draining", "stopped")),
    pinned=st.none() | st.sampled_from(Role),
    pin=st.sampled_from(Role),
    regime=st.sampled_from(Role),
    regime_age_s=SECONDS | st.just(float("inf")),
    smoothed=st.floats(0, 1e5) | st.sampled_from(ODD),
    enter_at=COUNTS,
    leave_at=COUNTS,
    waiting=COUNTS,
    max_waiting=st.none() | COUNTS,
    room=st.booleans(),
    lately=st.none() | latelies(),
    next=st.none() | st.sampled_from(Role),
    reason=st.none() | st.sampled_from(Reason),
    spare=st.booleans(),
    favour=FAVOURS,
    costs=st.none() | COSTS,
    tokens=st.floats(1, 1e6),
    learning_suspended=st.booleans(),
)
RUNNINGS = st.builds(
    Running,
    route=st.just("/v1/chat/completions"),
    traits=TRAITS,
    read_s=st.none() | SECONDS,
    role=st.none() | st.sampled_from(Role),
    here_s=SECONDS,
    moved=st.booleans(),
    tied=st.booleans(),
    begun=st.booleans(),
    heard_s=st.none() | SECONDS,
    held_up=st.booleans(),
    full=st.booleans(),
    in_flight=COUNTS,
    out=OUT,
    silent_s=st.none() | SECONDS,
    pace_s=st.none() | SECONDS,
    beside=OUT,
    limit=st.sampled_from(("timeouts.first_byte_s", "timeouts.stall_s")),
    limit_s=SECONDS,
    max_wait_s=SECONDS,
)
