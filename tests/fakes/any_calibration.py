"""Any findings a calibration could hand over: few or no cells, one arm or three, foreign names, odd numbers."""

from fakes.calibrated import MEASURED_AT
from hypothesis import strategies as st

from proxy.lab.calibration.values import (
    Arm,
    ArmFacts,
    Cell,
    Condition,
    ContextFindings,
    Estimate,
    Findings,
    Measurement,
    Quantiles,
    RunningRouting,
    Source,
    Sweep,
)
from proxy.model import Placement, Policy, Role
from proxy.routing.verdict import Contrast, Verdict, VerdictKind, judge

INFINITE = float("inf")

FOREIGN = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["<script>alert(1)</script>", "a|b`c", '"]]>', "@all", "\ud800", "\x00\x85", "--", "${HOME}"]),
)
NUMBERS = st.integers(1, 512)
SPEEDS = st.floats(1e-3, 1e6)
SEEN = st.one_of(st.none(), FOREIGN)


@st.composite
def estimates(draw: st.DrawFn, most: int = 4) -> tuple[Estimate, ...]:
    points = []
    for concurrency in sorted(draw(st.sets(NUMBERS, max_size=most))):
        speed = draw(SPEEDS)
        wide = draw(st.one_of(st.none(), st.floats(1.0, 3.0)))
        low, high = (None, None) if wide is None else (speed / wide, speed * wide)
        marks = draw(st.booleans()), draw(st.booleans())
        points.append(Estimate(concurrency, speed, low, high, draw(st.integers(0, 9)), *marks))
    return tuple(points)


@st.composite
def contrasts(draw: st.DrawFn) -> tuple[Contrast, ...]:
    found = []
    for concurrency in sorted(draw(st.sets(NUMBERS, max_size=4))):
        mean = draw(st.floats(-20.0, 20.0))
        half = draw(st.one_of(st.just(INFINITE), st.floats(0.0, 5.0)))
        marks = draw(st.booleans()), draw(st.booleans())
        found.append(Contrast(concurrency, mean, mean - half, mean + half, draw(st.integers(1, 9)), *marks))
    return tuple(found)


@st.composite
def contexts(draw: st.DrawFn, tokens: int) -> ContextFindings:
    arms = draw(st.sets(st.sampled_from(Arm)))
    compared = draw(contrasts())
    verdict = draw(st.sampled_from([judge(compared), Verdict(VerdictKind.UNKNOWN, reason="too noisy")]))
    curves = {arm: draw(estimates()) for arm in Arm if arm in arms}
    against = draw(contrasts()) if Arm.ADAPTIVE in arms else ()
    return ContextFindings(Condition(tokens), curves, compared, verdict, against, dict.fromkeys(arms, 0.01))


@st.composite
def measurements(draw: st.DrawFn, condition: Condition) -> Measurement:
    quantiles = st.one_of(st.none(), st.builds(Quantiles, *[st.floats(0.0, 1e4)] * 5))
    share, count = st.one_of(st.none(), st.floats(0.0, 1.0)), st.one_of(st.none(), st.floats(0.0, 1e6))
    return Measurement(
        Cell(
            condition, draw(NUMBERS), draw(st.sampled_from(Arm)), draw(st.integers(0, 9)), draw(st.sampled_from(Sweep))
        ),
        MEASURED_AT,
        draw(st.floats(0.0, 100.0)),
        draw(st.integers(0, 1000)),
        draw(st.floats(0.0, 1e6)),
        draw(st.sampled_from(Source)),
        draw(st.floats(0.0, 1e6)),
        draw(count),
        draw(count),
        draw(count),
        draw(count),
        draw(share),
        ttft_s=draw(quantiles),
        tpot_s=draw(quantiles),
        request_tok_s=draw(quantiles),
        queued=draw(st.booleans()),
        disturbed=draw(st.booleans()),
        errors=draw(st.dictionaries(FOREIGN, st.integers(1, 9), max_size=2)),
        client_cpu=draw(st.floats(0.0, 2.0)),
    )


@st.composite
def facts(draw: st.DrawFn, arm: Arm) -> ArmFacts:
    count = st.one_of(st.none(), st.integers(1, 4096))
    return ArmFacts(
        arm,
        draw(FOREIGN),
        draw(FOREIGN),
        draw(SEEN),
        draw(SEEN),
        draw(count),
        draw(count),
        draw(SEEN),
        draw(count),
        draw(count),
        draw(count),
        draw(st.booleans()),
        draw(SEEN),
        draw(count),
        draw(st.dictionaries(FOREIGN, FOREIGN, max_size=2)),
    )


@st.composite
def any_findings(draw: st.DrawFn) -> Findings:
    """Findings of up to three contexts and one side condition."""
    main = tuple(draw(contexts(tokens)) for tokens in sorted(draw(st.sets(st.integers(0, 65_536), max_size=3))))
    side = tuple(draw(st.lists(contexts(512), max_size=1)))
    conditions = [each.condition for each in (*main, *side)] or [Condition(1024)]
    cells = draw(st.lists(st.sampled_from(conditions).flatmap(measurements), max_size=4))
    leave_at = draw(st.integers(1, 100))
    running = RunningRouting(
        draw(st.sampled_from(Policy)),
        leave_at,
        leave_at - 1,
        draw(st.sampled_from(Role)),
        draw(st.sampled_from(Placement)),
    )
    arms = draw(st.sets(st.sampled_from(Arm)))
    return Findings(
        MEASURED_AT,
        draw(st.floats(0.0, 1e6)),
        {arm: draw(facts(arm)) for arm in Arm if arm in arms},
        main,
        side,
        draw(st.sampled_from([None, running])),
        draw(st.booleans()),
        draw(st.booleans()),
        tuple(draw(st.lists(FOREIGN, max_size=2))),
        tuple(cells),
    )
