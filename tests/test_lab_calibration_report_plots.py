import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from fakes.any_calibration import any_findings
from fakes.calibrated import context, findings, of_curve
from hypothesis import HealthCheck, given, settings

from proxy.lab.calibration.report.drawing import TONES, css
from proxy.lab.calibration.report.plots import Plot, draw
from proxy.lab.calibration.values import Arm, Findings
from proxy.model import Placement

SEPARATE = Placement.SEPARATE
SVG = "{http://www.w3.org/2000/svg}"


def names(found: Findings) -> list[str]:
    return [plot.name.rsplit("-", 1)[0] for plot in draw(found.main[0], found.measurements, SEPARATE)]


@pytest.fixture(scope="module")
def plots() -> list[Plot]:
    found = findings(of_curve("rtx6kpro_glm51_dcp4_ctx16384"))
    return list(draw(found.main[0], found.measurements, SEPARATE))


def test_a_whole_context_has_every_plot(plots: list[Plot]) -> None:
    assert [plot.name for plot in plots] == [
        f"{name}-16384" for name in ("throughput", "ratio", "request", "acceptance", "ways", "latency")
    ]


def test_colours_are_the_pages_own(plots: list[Plot]) -> None:
    for plot in plots:
        assert not re.search(r"#[0-9a-f]{6}", plot.inline)
        assert set(re.findall(r"var\(--(\w+)\)", plot.inline)) <= {tone.name for tone in TONES}


def test_a_file_of_its_own_brings_its_colours_for_light_and_dark(plots: list[Plot]) -> None:
    for plot in plots:
        assert css() in plot.svg
        assert ElementTree.fromstring(plot.svg).tag == f"{SVG}svg"
    assert "prefers-color-scheme: dark" in css()


def test_arms_differ_by_marker_and_dash_and_not_by_colour_alone(plots: list[Plot]) -> None:
    shown = {}
    for tone in ("speculative", "baseline"):
        uses = re.findall(rf'<use xlink:href="#(\w+)"[^>]*stroke: var\(--{tone}\)', plots[0].inline)
        dashes = re.findall(rf"stroke-dasharray: ([^;]+)[^>]*stroke: var\(--{tone}\)", plots[0].inline)
        shown[tone] = (set(uses), set(dashes))
    assert shown["speculative"][0] and not shown["speculative"][0] & shown["baseline"][0]
    assert shown["baseline"][1] and not shown["speculative"][1]


def test_no_two_plots_share_an_id(plots: list[Plot]) -> None:
    ids = [name for plot in plots for name in re.findall(r'\bid="([^"]+)"', plot.inline)]
    assert len(ids) == len(set(ids))
    referred = {name for plot in plots for name in re.findall(r"#([a-z][0-9a-f]{8,})", plot.inline)}
    assert referred <= set(ids)


def test_text_stays_text(plots: list[Plot]) -> None:
    drawn = {node.text for node in ElementTree.fromstring(plots[0].svg).iter(f"{SVG}text")}
    assert {"speculative", "baseline", "requests in flight", "16"} <= drawn


def test_pictures_are_png(plots: list[Plot]) -> None:
    assert all(plot.png.startswith(b"\x89PNG") for plot in plots)


def test_equal_findings_give_equal_pictures(plots: list[Plot]) -> None:
    found = findings(of_curve("rtx6kpro_glm51_dcp4_ctx16384"))
    again = next(draw(found.main[0], found.measurements, SEPARATE))
    assert (again.inline, again.png) == (plots[0].inline, plots[0].png)


def test_one_arm_alone_has_its_speeds_and_no_comparison() -> None:
    assert names(findings(context({}, {1: 10.0, 4: 30.0}), measurements=())) == ["throughput", "request"]


def test_cells_that_may_not_speak_are_not_drawn() -> None:
    plain = findings(context({}, {1: 10.0}))
    cut = tuple(replace(one, errors={"timeout": 1}) for one in plain.measurements)
    assert "latency" in names(plain)
    assert "latency" not in names(replace(plain, measurements=cut))


def test_what_was_not_measured_at_all_has_no_plot() -> None:
    assert names(findings(context({}, {}), measurements=())) == []


def test_a_queue_and_a_prediction_change_the_picture() -> None:
    plain = context({}, {1: 10.0, 4: 30.0})
    pictures = []
    for marks in ({}, {"queued": True}, {"predicted": True}):
        points = tuple(point._replace(**marks) for point in plain.curves[Arm.BASELINE])
        pictures.append(next(draw(replace(plain, curves={Arm.BASELINE: points}), (), SEPARATE)).inline)
    assert len(set(pictures)) == 3


@settings(deadline=None, max_examples=4, suppress_health_check=[HealthCheck.too_slow])
@given(any_findings())
def test_whatever_was_found_can_be_drawn(found: Findings) -> None:
    for each in found.main:
        for plot in draw(each, found.measurements, SEPARATE):
            ElementTree.fromstring(plot.svg)
