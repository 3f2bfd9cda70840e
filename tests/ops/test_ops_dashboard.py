"""The shipped dashboard's form: the current schema, a data source to choose, and panels that say what they show."""

import re
from typing import Any

import pytest
from fakes.dashboard import annotations, board, panels, queries
from shipped_rules import alerts

from proxy.metrics import Metrics

PANELS = pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
# Those of every process, which prometheus_client adds.
OF_THE_PROCESS = {
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
}
ASKED_FOR = (
    "in_flight",
    "threshold_sequences",
    "smoothed_in_flight",
    "regime",
    "decisions_total",
    "tokens_total",
    "ttft_seconds_bucket",
    "tpot_seconds_bucket",
    "request_duration_seconds_bucket",
    "waiting_requests",
    "queue_seconds_bucket",
    "failures_total",
    "attempt_failures_total",
    "refusals_total",
    "retries_total",
    "circuit_state",
    "backend_up",
    "drift_sequences",
    "learned_ratio",
    "overhead_seconds_bucket",
    "client_connections",
)


def test_it_is_of_the_schema_that_grafana_writes_now() -> None:
    assert board()["schemaVersion"] == 42
    assert board()["uid"] == "crossover"
    # What an export leaves in of the Grafana it came from, and what others cannot import.
    assert not board().keys() & {"id", "__inputs", "__requires", "iteration"}


def test_the_data_source_is_chosen_by_whoever_looks() -> None:
    source, instance = board()["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    assert instance["definition"] == "label_values(crossover_build_info, instance)"
    wanted = {"type": "prometheus", "uid": f"${{{source['name']}}}"}
    for panel in panels():
        assert [panel["datasource"], *(each["datasource"] for each in panel["targets"])] == [wanted] * (
            1 + len(panel["targets"])
        )


@PANELS
def test_each_panel_says_what_it_shows_and_in_which_unit(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert len(panel["description"]) > 40
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"]
    assert defaults["thresholds"]["steps"][0]["value"] is None
    assert all(target["legendFormat"] for target in panel["targets"])


@PANELS
def test_a_panel_that_names_an_alert_names_one_that_has_a_runbook(panel: dict[str, Any]) -> None:
    named = set(re.findall(r"Crossover[A-Z]\w+", panel["description"]))
    assert named <= {alert["alert"] for alert in alerts()}


def test_ids_are_unique_and_no_panel_lies_on_another() -> None:
    every = board()["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    taken: set[tuple[int, int]] = set()
    for panel in every:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


def test_queries_ask_one_proxy_for_families_that_exist() -> None:
    families = {family.name for family in Metrics(lambda: None).families}  # type: ignore[arg-type,return-value]
    for title, query in [*queries(), *(("a mark", query) for query in annotations())]:
        names = re.findall(r"\b(?:crossover|process)_\w+(?=\{)", query)
        assert names, title
        assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in names} <= families | OF_THE_PROCESS, title
        assert query.count('instance="$instance"') == len(names), title


@pytest.mark.parametrize("name", ASKED_FOR)
def test_what_operators_ask_for_has_its_panel(name: str) -> None:
    assert any(f"crossover_{name}{{" in query for _, query in queries())
