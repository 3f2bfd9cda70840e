"""A backend that requests wait on and that says nothing is told before it counts as down."""

from fakes.rig import Rig

from proxy.model import EngineLoad, Role
from proxy.routing.health import Evidence
from proxy.watch.silence import said, troubles

SPECULATIVE, BASELINE = Role


def frozen(requests: int = 3) -> Rig:
    """A rig whose baseline told its load eight seconds ago, has requests, and has missed a probe since."""
    rig = Rig()
    backend = rig.desk.backend(BASELINE)
    rig.desk.observe_health(backend, Evidence.HIT)
    rig.desk.observe_load(backend, EngineLoad(0, 0))
    for _ in range(requests):
        rig.assign(asked=BASELINE)
    rig.now_s += 8.0
    rig.desk.observe_health(backend, Evidence.MISS)
    return rig


def test_requests_that_wait_on_a_backend_that_misses_its_probes_are_told() -> None:
    rig = frozen()
    [trouble] = troubles(rig.desk.backends, rig.now_s)
    assert trouble.message == "Baseline has given nothing for 8 s, and 3 requests wait there."
    assert (trouble.code, trouble.severe) == ("silent", True)


def test_nobody_is_silent_while_nothing_waits_there_or_tokens_come() -> None:
    assert troubles(frozen(0).desk.backends, 8.0) == []
    rig = frozen()
    rig.desk.tokens_flowed(rig.desk.backend(BASELINE))
    assert troubles(rig.desk.backends, rig.now_s) == []


def test_one_whose_probe_is_late_is_told_also_while_nobody_waits_there_but_as_no_severe_trouble() -> None:
    rig = Rig()
    backend = rig.desk.backend(BASELINE)
    rig.desk.observe_health(backend, Evidence.HIT)
    rig.desk.listen(backend)
    rig.desk.unanswered(backend)
    [trouble] = troubles(rig.desk.backends, rig.now_s)
    assert trouble.message == ("Baseline gives nothing and misses its probes.")
    assert trouble.severe is False
    rig.assign(asked=BASELINE)
    [trouble] = troubles(rig.desk.backends, rig.now_s)
    assert trouble.severe is True
    rig.desk.spoke(backend)
    assert troubles(rig.desk.backends, rig.now_s) == []


def test_two_that_are_silent_are_severe_also_while_nobody_waits_there() -> None:
    rig = Rig()
    for backend in rig.desk.backends:
        rig.desk.observe_health(backend, Evidence.HIT)
        rig.desk.listen(backend)
        rig.desk.unanswered(backend)
    assert [trouble.severe for trouble in troubles(rig.desk.backends, rig.now_s)] == [True, True]


def test_one_that_is_down_is_told_as_down_and_not_twice() -> None:
    rig = frozen()
    backend = rig.desk.backend(BASELINE)
    for _ in range(2):
        assert backend.gives_nothing
        rig.desk.observe_health(backend, Evidence.MISS)
    assert backend.health.up is False
    assert not backend.gives_nothing


def test_one_that_tells_no_load_is_told_without_a_time() -> None:
    rig = frozen(1)
    backend = rig.desk.backend(BASELINE)
    backend.load_at_s = None
    assert said(backend, rig.now_s) == "Baseline gives nothing and misses its probes, and 1 request waits there."
