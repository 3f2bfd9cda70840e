"""The shipped rules: promtool passes them, their cases hold, they name what exists, and a healthy proxy stirs none."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.curves import NAME, measured, write
from fakes.reloading import BASELINE, Engine, staged
from fakes.scraped import ROOT, promtool
from fakes.until import until
from shipped_rules import FOLDER, RULES, alerts, rules

from proxy.app import App
from proxy.errors import CrossoverError, InvalidRequest
from proxy.metrics import ERROR_EVENT, OTHER, Metrics
from proxy.metrics.counting import codes

CASES = sorted(Path(__file__).parent.glob("*.test.yml"))
SEVERITIES = {"critical", "warning", "info"}
# Codes that are no failure of an engine or of the proxy: there is no room, or it stops.
NO_ROOM = {"queue_full", "queue_timeout", "bodies_full", "too_many_connections", "shutting_down"}


def named(rule: dict[str, Any]) -> str:
    name: str = rule.get("alert") or rule["record"]
    return name


@cache
def tried() -> list[dict[str, Any]]:
    return [
        each for path in CASES for case in yaml.safe_load(path.read_text())["tests"] for each in case["alert_rule_test"]
    ]


def test_promtool_finds_nothing_to_say_about_the_configuration_and_the_rules() -> None:
    for arguments in (("check", "config", FOLDER / "prometheus.yml"), ("check", "rules", "--lint-fatal", *RULES)):
        checked = promtool(*arguments)
        assert checked.returncode == 0, (checked.stdout + checked.stderr).decode()


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_every_case_holds(path: Path) -> None:
    checked = promtool("test", "rules", path)
    assert checked.returncode == 0, (checked.stdout + checked.stderr).decode()


@pytest.mark.parametrize("alert", alerts(), ids=named)
def test_each_alert_is_tried_where_it_fires_and_where_it_does_not(alert: dict[str, Any]) -> None:
    fires = {bool(each["exp_alerts"]) for each in tried() if each["alertname"] == alert["alert"]}
    assert fires == {True, False}


@pytest.mark.parametrize("alert", alerts(), ids=named)
def test_each_alert_says_what_is_wrong_with_its_number_and_where_to_read_on(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in SEVERITIES
    said = alert["annotations"]
    assert said.keys() == {"summary", "description", "runbook_url"}
    # Who does not answer has no number.
    assert "$value" in said["description"] or alert["alert"] == "CrossoverGone"
    page, _, anchor = said["runbook_url"].partition("#")
    assert anchor in anchors(ROOT / page), f"{page} has no heading {anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_runbook_is_of_an_alert_that_exists() -> None:
    headings = re.findall(r"^### (Crossover\w+)$", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(alert["alert"] for alert in alerts())


@pytest.mark.parametrize("rule", rules(), ids=named)
def test_each_rule_names_families_that_exist(rule: dict[str, Any]) -> None:
    families = {family.name: family for family in Metrics(lambda: None).families}  # type: ignore[arg-type,return-value]
    for name in re.findall(r"(?<![\w:])crossover_\w+", rule["expr"]):
        assert re.sub(r"_(bucket|sum|count)$", "", name) in families, name


def test_what_counts_as_a_failure_is_every_code_that_is_not_the_clients_nor_want_of_room() -> None:
    [failures] = [rule["expr"] for rule in rules() if rule.get("record") == "instance:crossover_failures:ratio_rate5m"]
    found = re.search(r'code!~"([^"]+)"', failures)
    assert found is not None
    left_out = set(found[1].split("|"))
    assert left_out == of_clients() | NO_ROOM
    assert left_out <= {*codes(), OTHER, ERROR_EVENT}


def of_clients() -> set[str]:
    return set(codes(InvalidRequest))


def test_the_tree_of_errors_is_all_there() -> None:
    assert of_clients() < set(codes(CrossoverError)), "or the test above would compare nothing"


# ---------------------------------------------------------------- a proxy that is well

# Longer than any alert but that of a forgotten drain waits, in steps of half a minute.
MINUTES = 35


async def exposed(folder: Path, *, curves: bool) -> list[str]:
    """The series of a proxy that has seen nothing but its engines."""
    write(folder, measured())
    async with Engine() as a, Engine(BASELINE) as b, staged(folder / "crossover.yaml", a, b) as stage:
        if curves:
            stage.change(routing={"policy": "auto", "curves_file": NAME})
            assert (await stage.reload())[0] == 200
        await until(lambda: told_of_engines(stage.app), what="both engines seen")
        return [line for line in stage.app.metrics.exposition().decode().splitlines() if not line.startswith("#")]


def told_of_engines(app: App) -> bool:
    return all(each.facts and each.load and each.health.up for each in app.desk.backends)


def stays(value: str) -> str:
    """A series that is there all the while."""
    return f"{value}x{2 * MINUTES}"


def begins(value: str) -> str:
    """One that is there from the third minute on."""
    return f"_x6 {value}x{2 * MINUTES}"


def restarts(value: str) -> str:
    """One that is away for half a minute, once."""
    return f"{value}x20 _x1 {value}x{2 * MINUTES}"


@pytest.mark.parametrize("curves", [False, True], ids=["by hand", "by curves"])
@pytest.mark.parametrize("course", [stays, begins, restarts], ids=["idle", "just started", "restarted once"])
async def test_no_alert_stirs_on_a_healthy_proxy(course: Any, curves: bool, tmp_path: Path) -> None:
    promtool("--version")
    series = [{"series": 'up{job="crossover", instance="proxy"}', "values": f"1x20 0x1 1x{2 * MINUTES}"}]
    for line in await exposed(tmp_path, curves=curves):
        name, _, value = line.rpartition(" ")
        metric, _, labels = name.partition("{")
        labels = ", ".join(filter(None, ('job="crossover"', 'instance="proxy"', labels.rstrip("}"))))
        # A second start has another instant.
        values = course(value).replace(f"_x1 {value}", "_x1 9") if "start_time" in metric else course(value)
        series.append({"series": f"{metric}{{{labels}}}", "values": values})
    # The one that may stir, while it is away, is that it is away.
    query = 'ALERTS{alertname!="CrossoverGone"} or ALERTS{alertstate="firing"}'
    asked = [{"expr": query, "eval_time": f"{minute}m", "exp_samples": []} for minute in range(1, MINUTES)]
    case = {"interval": "30s", "input_series": series, "promql_expr_test": asked}
    values_file = {"rule_files": list(map(str, RULES)), "evaluation_interval": "30s", "tests": [case]}
    (tmp_path / "healthy.test.yml").write_text(yaml.safe_dump(values_file))
    checked = promtool("test", "rules", tmp_path / "healthy.test.yml")
    assert checked.returncode == 0, (checked.stdout + checked.stderr).decode()[:2000]
