"""The demo under load with a real Prometheus beside it: the rules evaluate, no alert stands, the dashboard has data.

`--ops-seconds 60` lets the load last longer. What needs a fault to show anything is asked after the faults.
"""

import demo_run
import pytest
import uvloop
from demo_run import OF_FAULTS, PANELS_OF_FAULTS, Seen
from fakes.dashboard import queries
from fakes.scraped import promtool
from shipped_rules import RULES


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Seen:
    promtool("--version")  # skips where there is none, before anything is started
    load_s = request.config.getoption("--ops-seconds")
    return uvloop.run(demo_run.run(tmp_path_factory.mktemp("prometheus"), load_s))


def test_every_query_of_the_dashboard_has_data_under_load(seen: Seen) -> None:
    assert seen.requests > demo_run.CLIENTS
    empty = [
        (title, query) for title, query in queries() if title not in PANELS_OF_FAULTS and not seen.under_load[query]
    ]
    assert empty == []


def test_panels_of_faults_are_empty_until_there_is_one_and_then_have_data(seen: Seen) -> None:
    of_faults = [query for title, query in queries() if title in PANELS_OF_FAULTS]
    assert len(of_faults) >= len(PANELS_OF_FAULTS)
    assert [query for query in of_faults if seen.under_load[query]] == []
    assert [query for query in of_faults if not seen.after_faults[query]] == []


def test_every_rule_evaluates(seen: Seen) -> None:
    assert len(seen.rules) >= 20
    assert {rule["name"]: rule["lastError"] for rule in seen.rules if rule["health"] != "ok"} == {}


def test_no_alert_stands_under_an_ordinary_load(seen: Seen) -> None:
    # The demo's engines step as a busy machine lets them, so that what is learned of them may waver for seconds.
    assert {name: state for name, state in seen.alerts_before.items() if name != "CrossoverSpeculationLost"} == {}
    assert "firing" not in seen.alerts_before.values()


def test_dead_engines_and_a_wrong_configuration_are_noticed_by_the_alerts_for_them(seen: Seen) -> None:
    assert seen.alerts_after.keys() >= OF_FAULTS
    assert set(seen.alerts_after.values()) == {"pending"}, "none fires within seconds"


def test_the_rules_in_force_were_those_that_are_shipped(seen: Seen) -> None:
    shipped = sum(path.read_text().count("expr:") for path in RULES)
    assert len(seen.rules) == shipped
