"""Settings become the rules of each room, none lost on the way."""

from typing import Any

import pytest

from proxy import config, plan
from proxy.config import Settings
from proxy.dispatch import BackendPlan
from proxy.model import Placement, Policy, Role
from proxy.protocol.routes import EngineKind
from proxy.routing.breaker import BreakerRules
from proxy.routing.health import HealthRules
from proxy.routing.retries import RetryRules
from proxy.wire.admission import QueueRules
from proxy.wire.arrivals import ConnectionRules
from proxy.wire.body import BodyRules
from proxy.wire.pair import LineRules
from proxy.wire.passage import Patience

URLS = {"speculative": {"url": "http://10.0.0.1:1"}, "baseline": {"url": "http://10.0.0.2:2"}}


def settings(**sections: Any) -> Settings:
    return config.from_mapping({"backends": URLS, **sections})


def test_the_backends_keep_role_url_and_limit() -> None:
    backends = {"speculative": {**URLS["speculative"], "max_in_flight": 12}, "baseline": URLS["baseline"]}
    made = plan.plan(config.from_mapping({"backends": backends}))
    assert made.backends == (
        BackendPlan(Role.SPECULATIVE, "http://10.0.0.1:1", 12),
        BackendPlan(Role.BASELINE, "http://10.0.0.2:2", None),
    )


def test_the_desks_rules_are_those_of_the_file() -> None:
    made = plan.plan(
        settings(
            placement="shared",
            routing={"leave_at": 7, "enter_at": 3, "allow_header": True},
            circuit={"max_failures": 2, "open_s": 3.0, "max_probes": 4},
            health={"max_misses": 6, "min_hits": 5},
            retries={"max_ratio": 0.5, "reserve": 3},
            timeouts={"linger_s": 1.5},
        )
    )
    assert (made.rules.placement, made.rules.effective_policy) == (Placement.SHARED, Policy.THRESHOLD)
    assert (made.rules.leave_at, made.rules.enter_at, made.rules.allow_header) == (7, 3, True)
    assert (made.breaker, made.health) == (BreakerRules(2, 3.0, 4), HealthRules(6, 5))
    assert (made.retries, made.linger_s) == (RetryRules(0.5, 3), 1.5)


def test_each_line_is_reached_and_watched_by_its_own_section() -> None:
    backends = {
        "speculative": {**URLS["speculative"], "engine": "vllm", "api_key": "k1"},
        "baseline": {**URLS["baseline"], "engine": "vllm"},
    }
    lines = plan.line_rules(
        config.from_mapping(
            {
                "backends": backends,
                "timeouts": {"connect_s": 1.0},
                "health": {"interval_s": 3.0, "timeout_s": 4.0},
            }
        )
    )
    assert lines == {
        Role.SPECULATIVE: LineRules("http://10.0.0.1:1", EngineKind.VLLM, "k1", 1.0, 3.0, 4.0),
        Role.BASELINE: LineRules("http://10.0.0.2:2", EngineKind.VLLM, None, 1.0, 3.0, 4.0),
    }


def test_the_limits_of_a_request_are_those_of_the_file() -> None:
    made = plan.patience(settings(timeouts={"first_byte_s": 20.0, "stall_s": 3.0}))
    assert made == Patience(20.0, 3.0)


def test_the_limits_of_bodies_are_those_of_the_file() -> None:
    listen = {"max_body_bytes": 2048, "body_timeout_s": 1.0, "min_body_bytes_per_s": 3, "max_held_body_bytes": 4096}
    assert plan.body_rules(settings(listen=listen)) == BodyRules(2048, 1.0, 3, 4096)


def test_the_limits_of_connections_are_those_of_the_file() -> None:
    listen = {"max_connections": 5, "head_timeout_s": 6.0, "max_head_bytes": 7000, "max_headers": 8}
    made = plan.connection_rules(settings(listen={**listen, "unread_timeout_s": 9.0}))
    assert made == ConnectionRules(5, 6.0, 7000, 8, 9.0)


def test_no_more_connections_are_taken_than_open_files_are_enough_for() -> None:
    made = plan.connection_rules(settings(listen={"max_connections": 500}), 256)
    assert (made.max_connections, made.max_told) == (96, 16)
    assert plan.connection_rules(settings(listen={"max_connections": 50}), 2000).max_connections == 50


def test_the_limits_of_waiting_are_those_of_the_file() -> None:
    assert plan.queue_rules(settings(queue={"max_waiting": 3, "max_wait_s": 4.0})) == QueueRules(3, 4.0)


@pytest.mark.parametrize(
    ("made", "default"),
    [
        (plan.patience(settings()), Patience()),
        (plan.body_rules(settings()), BodyRules()),
        (plan.connection_rules(settings()), ConnectionRules()),
        (plan.queue_rules(settings()), QueueRules()),
        (plan.plan(settings()).breaker, BreakerRules()),
        (plan.plan(settings()).health, HealthRules()),
        (plan.plan(settings()).retries, RetryRules()),
    ],
)
def test_the_defaults_of_a_room_are_those_of_the_file(made: object, default: object) -> None:
    assert made == default
