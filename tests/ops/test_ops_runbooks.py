"""docs/operations.md names metrics, keys, events, codes and anchors that exist: at night nobody looks them up."""

import re

import orjson
import pytest
from fakes.scraped import ROOT

from proxy.config.problems import dotted
from proxy.config.reference import key_paths
from proxy.lab.faults import parse_fault
from proxy.metrics import Metrics
from proxy.metrics.counting import codes

PAGE = (ROOT / "docs" / "operations.md").read_text()
ALERTS = (ROOT / "config" / "prometheus" / "crossover.alerts.yml").read_text()
TOLD = (ROOT / "docs" / "logs.md").read_text()


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_metrics_that_are_named_exist() -> None:
    families = {family.name for family in Metrics(lambda: None).families}  # type: ignore[arg-type,return-value]
    named = set(re.findall(r"\bcrossover_[a-z_]+", PAGE))
    assert len(named) > 20
    assert named - families <= {"crossover_", "crossover_keys"} | beginnings(families)


def beginnings(families: set[str]) -> set[str]:
    """What a search for several may begin with: `crossover_backend`."""
    return {name[:at] for name in families for at in range(len(name))}


def test_what_first_look_searches_for_has_every_count_of_what_ends_badly() -> None:
    """A queue that turns clients away showed nothing there once."""
    families = {family.name for family in Metrics(lambda: None).families}  # type: ignore[arg-type,return-value]
    searched = {name: set(said.split("|")) for name, said in re.findall(r"^    ([SC])='([^']+)'", PAGE, re.MULTILINE)}
    assert {f"crossover_{word}" for word in searched["C"]} == {
        name for name in families if name.endswith(("refusals_total", "failures_total"))
    }
    for word in searched["S"]:
        assert any(name.startswith(f"crossover_{word}") for name in families), word


def test_every_count_of_what_ends_badly_has_a_row_in_first_look() -> None:
    rows = set(re.findall(r"^\| `(crossover_\w+_total)` \|", PAGE, re.MULTILINE))
    assert rows == {f"crossover_{name}_total" for name in ("refusals", "failures", "attempt_failures")}


def test_faults_that_the_demo_is_asked_for_exist() -> None:
    asked = re.findall(r"/faults -d '(\{.*?\})'", PAGE)
    assert len(asked) == 3
    for body in asked:
        parse_fault(str(orjson.loads(body)["kind"]))


def test_keys_that_are_named_exist() -> None:
    paths = list(key_paths())
    keys = {dotted(path) for path in paths} | {dotted(path[:-1]) for path in paths}
    sections = {path[0] for path in paths}
    named = {
        name for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)(?:: [^`]*)?`", PAGE) if name.split(".")[0] in sections
    }
    assert len(named) > 15
    assert named <= keys


@pytest.mark.parametrize(
    "event", sorted(set(re.findall(r'"event":"(\w+)"', PAGE)) | {"config_rejected", "engine_seen"})
)
def test_events_that_are_named_are_logged(event: str) -> None:
    assert event in PAGE
    assert f"### {event}\n" in TOLD


def test_codes_of_refusals_that_the_alert_counts_exist_and_have_a_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \| \d{3} \|", PAGE, re.MULTILINE)
    counted = re.search(r'crossover_refusals_total\{code=~"([^"]+)"', ALERTS)
    assert counted is not None
    assert sorted(rows) == sorted(counted[1].split("|"))
    assert set(rows) <= set(codes())


def test_links_within_the_page_and_to_its_neighbours_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", re.sub(r"\]\(#", "](operations.md#", PAGE))
    assert len(links) > 15
    for page, anchor in links:
        assert anchor in anchors((ROOT / "docs" / page).read_text()), f"{page}#{anchor}"
    for path in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (ROOT / "docs" / path).exists(), path
