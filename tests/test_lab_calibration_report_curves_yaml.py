from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from fakes.any_calibration import any_findings
from fakes.calibrated import context, facts, findings, of_curve, seed_box
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.curves_file import read_curves
from proxy.config.variables import substituted
from proxy.lab.calibration.advice.choices import speed_curve
from proxy.lab.calibration.report.curves_yaml import text
from proxy.lab.calibration.values import Arm, Findings
from proxy.lab.speeds_file import number, quoted
from proxy.model import Placement, Role
from proxy.routing.curves import Curves


def read(found: Findings) -> Curves | None:
    """What the proxy makes of the file; None where there is none. Fails on any problem."""
    written = text(found)
    if written is None:
        return None
    with TemporaryDirectory() as folder:
        path = Path(folder) / "curves.yaml"
        path.write_text(written, encoding="utf-8")
        curves, problems = read_curves(path)
    assert problems == []
    assert curves is not None
    return curves


def test_the_proxy_reads_what_was_measured() -> None:
    found = seed_box()
    curves = read(found)
    assert curves is not None
    (bucket,) = curves.contexts
    assert bucket.context_tokens == 1024
    assert bucket.verdict.kind is found.main[0].verdict.kind
    assert bucket.baseline is not None
    assert bucket.baseline.tok_s(250) == pytest.approx(773)
    assert [point.in_flight for point in bucket.baseline.points] == [
        p.concurrency for p in found.main[0].curves[Arm.BASELINE]
    ]
    assert curves.placement is Placement.SEPARATE
    assert curves.model == "example/model-8b"
    assert curves.versions == {Role.SPECULATIVE: "0.5.23", Role.BASELINE: "0.5.23"}


def test_a_crossing_and_the_ratios_come_back() -> None:
    found = findings(of_curve("rtx6kpro_glm51_dcp4_ctx16384"))
    curves = read(found)
    assert curves is not None
    (bucket,), (crossing,) = curves.contexts, found.main[0].verdict.crossings
    (again,) = bucket.verdict.crossings
    assert again.at == pytest.approx(crossing.at, rel=1e-5)
    assert (again.low, again.high, again.faster_above) == (crossing.low, crossing.high, crossing.faster_above)
    assert [one.log_ratio for one in bucket.contrasts] == pytest.approx(
        [one.log_ratio for one in found.main[0].contrasts], abs=1e-5
    )


def test_a_ratio_of_a_queue_is_marked() -> None:
    curves = read(seed_box())
    assert curves is not None
    assert [one.concurrency for one in curves.contexts[0].contrasts if one.queued] == [64, 96, 128, 192, 250]


def test_an_arm_that_was_not_measured_is_empty() -> None:
    curves = read(findings(context({}, {1: 10.0, 2: 19.0})))
    assert curves is not None
    assert curves.contexts[0].speculative is None


def test_nothing_measured_gives_no_file() -> None:
    assert text(findings()) is None
    assert text(findings(context({}, {}))) is None


def test_predicted_speeds_are_marked() -> None:
    plain = context({1: 10.0}, {1: 9.0, 4: 30.0})
    guessed = tuple(
        point._replace(low=None, high=None, predicted=point.concurrency > 1) for point in plain.curves[Arm.BASELINE]
    )
    curves = read(findings(replace(plain, curves={**plain.curves, Arm.BASELINE: guessed}), quick=True))
    assert curves is not None
    assert curves.contexts[0].baseline is not None
    assert [point.predicted for point in curves.contexts[0].baseline.points] == [False, True]


def test_the_header_says_what_it_was_written_from() -> None:
    head = (text(seed_box(complete=False)) or "").splitlines()[:3]
    assert head[0].startswith("# Written by crossover calibrate")
    assert head[1] == "# From 52 cells in one calibration, which was not carried out to its end."


def test_foreign_names_stay_text() -> None:
    name = 'a"b\\c: {x} # <script> \U0001f600 ${HOME} $${y}'
    curves = read(findings(of_curve("seed"), facts={Arm.BASELINE: facts(Arm.BASELINE, model=name)}))
    assert curves is not None
    assert curves.model == name


@given(st.floats(1e-6, 1e9))
def test_a_number_is_a_number_to_yaml(value: float) -> None:
    again = yaml.safe_load(number(value))
    assert isinstance(again, int | float)
    assert again == pytest.approx(value, rel=1e-5)


@given(st.text())
def test_quoted_text_comes_back_where_it_can_be_printed(words: str) -> None:
    again = substituted(yaml.safe_load(quoted(words)), {})
    assert again == "".join(char if char.isprintable() else "?" for char in words)


@given(any_findings())
def test_whatever_was_found_the_proxy_can_read_it(found: Findings) -> None:
    curves = read(found)
    spoken = {
        arm: [each for each in found.main if speed_curve(each.curves.get(arm, ()))]
        for arm in (Arm.SPECULATIVE, Arm.BASELINE)
    }
    whole = [each for each in spoken[Arm.SPECULATIVE] if each in spoken[Arm.BASELINE]]
    either = [each for each in found.main if each in spoken[Arm.SPECULATIVE] or each in spoken[Arm.BASELINE]]
    kept = whole or either
    assert [each.condition.context_tokens for each in kept] == (
        [] if curves is None else [bucket.context_tokens for bucket in curves.contexts]
    )
