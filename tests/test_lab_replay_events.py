"""One line of a log: the product's own lines come back as they were, and nothing else is taken for one."""

import orjson
import pytest
from fakes.logged import BEGAN, FACTS, line, sent_to
from fakes.speeds import of_both
from hypothesis import given
from hypothesis import strategies as st

from proxy.lab.replay.events import Dropped, EngineSeen, InForce, Settled, Skip, read_event
from proxy.model import ROLES, BackendLoad, LoadSnapshot, Outcome, Policy, Reason, Regime, Role, Traits, Usage
from proxy.routing.policy import Rules, decide

OTHER = b'{"event":"config_reloaded","changes":[],"level":"info"}'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def settled(text: bytes) -> Settled:
    found = read_event(text)
    assert isinstance(found, Settled), found
    return found


def changed(**fields: object) -> bytes:
    return orjson.dumps(orjson.loads(line()) | fields)


def test_a_request_comes_back_with_all_that_a_decision_looks_at() -> None:
    traits = Traits(3, True, None, 77, constrained=True, session=True, max_tokens=300)
    found = settled(line(FACTS._replace(traits=traits, decision=sent_to(Role.BASELINE)), 12.5))
    assert found.traits == traits
    assert (found.role, found.usage, found.duration_s) == (Role.BASELINE, Usage(400, 100), 2.0)
    assert found.at_s == pytest.approx(BEGAN.timestamp() + 12.5, abs=1e-3)
    assert found.told is not None
    assert (found.told.policy, found.told.enter_at, found.told.leave_at) == (Policy.OVERFLOW, 5, 9)


@pytest.mark.parametrize("policy", [policy for policy in Policy if policy is not Policy.AUTO])
def test_a_line_of_any_policy_tells_what_was_in_force(policy: Policy) -> None:
    rules = Rules(policy, curves=of_both({1: 100.0, 8: 400.0}, {1: 60.0, 8: 480.0}))
    decision = decide(rules, Regime(), LoadSnapshot(0.0, *map(BackendLoad, ROLES)), Traits())
    told = settled(line(FACTS._replace(decision=decision))).told
    assert told == InForce(policy, decision.because.enter_at, decision.because.leave_at)
    assert (told.leave_at is None) == (policy not in {Policy.OVERFLOW, Policy.THRESHOLD})


def test_a_role_that_a_client_asked_for_is_asked_for_again() -> None:
    asked = sent_to(Role.BASELINE, reason=Reason.HEADER)
    assert settled(line(FACTS._replace(decision=asked))).traits.asked is Role.BASELINE
    assert settled(line()).traits.asked is None


def test_what_was_never_decided_has_no_backend() -> None:
    found = settled(line(FACTS._replace(decision=None, outcome=Outcome.FAILED_BEFORE_COMMIT)))
    assert (found.role, found.reason, found.told) == (None, None, None)


@pytest.mark.parametrize(
    "around",
    [
        b"%s",
        b"crossover-1  | %s",
        b"2026-11-30T04:00:00.1Z stdout F %s",
        b"Nov 30 04:00:00 host crossover[17]: %s\r\n",
        b'{app="crossover"} %s',
    ],
)
def test_words_of_collectors_before_the_line_are_passed_over(around: bytes) -> None:
    assert settled(around % line().strip()) == settled(line())


@pytest.mark.parametrize("name", ["log", "MESSAGE"])
def test_wrappings_of_docker_and_journald_are_taken_off(name: str) -> None:
    wrapped = orjson.dumps({name: line().decode(), "stream": "stdout"})
    assert settled(wrapped) == settled(line())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\n", Skip.BLANK),
        (b"Crossover on http://127.0.0.1:30000", Skip.NO_JSON),
        (line()[:-20], Skip.NO_JSON),
        (b"[1]", Skip.NO_JSON),
        (OTHER, Skip.OTHER_EVENT),
        (b'{"msg":"of another program"}', Skip.OTHER_EVENT),
        (b'{"event":"engine_seen","role":"baseline","max_running_requests":null}', Skip.OTHER_EVENT),
        (changed(timestamp=None), Skip.INCOMPLETE),
        (changed(timestamp="yesterday"), Skip.INCOMPLETE),
        (changed(duration_s=-1.0), Skip.INCOMPLETE),
        (changed(duration_s=1e300), Skip.INCOMPLETE),
        (changed(duration_s="2"), Skip.INCOMPLETE),
        (changed(weight=0), Skip.INCOMPLETE),
        (changed(weight=True), Skip.INCOMPLETE),
        (changed(completion_tokens=10**15), Skip.INCOMPLETE),
        (changed(role="third"), Skip.INCOMPLETE),
        (changed(outcome=[]), Skip.INCOMPLETE),
        (changed(route=7), Skip.INCOMPLETE),
    ],
)
def test_every_other_line_is_skipped_with_why(text: bytes, why: Skip) -> None:
    assert read_event(text) is why


def test_lines_that_the_proxy_could_not_write_are_known_by_its_own_word() -> None:
    assert read_event(b'{"lines":31,"event":"log_lines_dropped","level":"warning"}') == Dropped(31)


def test_an_engine_tells_how_many_sequences_it_runs() -> None:
    seen = b'{"role":"baseline","max_running_requests":64,"event":"engine_seen"}'
    assert read_event(seen) == EngineSeen(Role.BASELINE, 64)


def test_an_instant_without_a_zone_is_in_utc() -> None:
    assert settled(changed(timestamp="2026-11-30T04:00:02")).at_s == pytest.approx(BEGAN.timestamp(), abs=1e-3)


@given(text=st.binary(max_size=200))
def test_no_bytes_raise_anything(text: bytes) -> None:
    assert isinstance(read_event(text), Skip)


@given(fields=st.dictionaries(st.sampled_from(sorted(orjson.loads(line()))), JSON), wrapped=st.booleans())
def test_no_odd_values_in_a_line_raise_anything(fields: dict[str, object], wrapped: bool) -> None:
    try:
        text = changed(**fields)
    except TypeError:  # integers beyond 64 bits cannot be written
        return
    if wrapped:
        text = orjson.dumps({"log": text.decode()})
    assert isinstance(read_event(text), Settled | Dropped | EngineSeen | Skip)


@pytest.mark.parametrize(
    "instant", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z", "1969-12-31T00:00:00Z"]
)
def test_an_instant_of_no_clock_that_is_right_is_an_odd_field(instant: str) -> None:
    assert read_event(changed(timestamp=instant)) is Skip.INCOMPLETE


def test_more_tokens_than_any_engine_takes_are_an_odd_field() -> None:
    assert read_event(changed(prompt_tokens=100_000_000)) is Skip.INCOMPLETE
