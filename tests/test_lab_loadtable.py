import re

import orjson
import pytest

from proxy.lab.loadreport import Comparison, Level, LevelSpec, Loop, Report, Sample, Window, compare, summarize
from proxy.lab.loadtable import level_name, render, to_json
from proxy.model import Role

WINDOW = Window(0.0, 0.0, 10.0)


def level(concurrency: int, tokens: int | None = 5, asked: Role | None = None, error: str | None = None) -> Level:
    served = asked or Role.BASELINE
    sample = Sample(
        1.0, 9.0, first_at_s=2.0, last_at_s=8.0, completion_tokens=tokens, backend=served, reason="regime", error=error
    )
    return summarize(LevelSpec(Loop.CLOSED, concurrency), [sample] * concurrency, WINDOW, asked)


def cells(line: str) -> list[str]:
    return re.split(r"  +", line)


def test_every_row_has_a_cell_under_every_head() -> None:
    lines = render(Report({}, (level(1), level(128, tokens=100_000)))).splitlines()
    assert {len(cells(line)) for line in lines} == {15}
    assert cells(lines[2])[:5] == ["concurrency 128", "128", "0", "102.4", "1280000.0"]


def test_columns_end_at_the_same_place_when_numbers_differ_in_width() -> None:
    lines = render(Report({}, (level(1), level(128, tokens=100_000)))).splitlines()
    middle = [line[: line.rindex("  ")] for line in lines]
    assert len({len(line) for line in middle}) == 1


def test_what_is_not_known_is_a_dash_and_not_nought() -> None:
    (_, line) = render(Report({}, (level(3, tokens=None),))).splitlines()
    assert cells(line)[4:7] == ["-", "-", "-"]


@pytest.mark.parametrize(("reason", "told"), [("regime", "2"), ("cheaper", "-")])
def test_switches_are_told_where_one_backend_is_favoured_and_not_where_each_request_is_decided(
    reason: str, told: str
) -> None:
    backends = (Role.BASELINE, Role.SPECULATIVE, Role.BASELINE)
    samples = [Sample(at, 9.0, backend=role, reason=reason) for at, role in enumerate(backends, 1)]
    (_, line) = render(Report({}, (summarize(LevelSpec(Loop.CLOSED, 3), samples, WINDOW),))).splitlines()
    assert cells(line)[-2] == told


def test_errors_are_named_with_their_counts() -> None:
    (_, line) = render(Report({}, (level(3, error="cut"),))).splitlines()
    assert cells(line)[1:3] == ["0", "3 cut"]


def test_a_comparison_stands_below_with_its_gain() -> None:
    own, only = (level(4, 30),), (level(4, 20, Role.SPECULATIVE), level(4, 24, Role.BASELINE))
    text = render(Report({}, own, only, comparisons=compare(own, only)))
    head, line = text.split("\n\n")[1].splitlines()
    assert cells(head)[1:] == [
        "own choice tok/s",
        "only speculative tok/s",
        "only baseline tok/s",
        "gain over the better (95 %)",
    ]
    assert cells(line)[:-1] == ["concurrency 4", "12.0", "8.0", "9.6"]
    assert cells(line)[-1].startswith("+25.0% ("), "a gain is told with how far it can be believed"


@pytest.mark.parametrize(
    ("gain", "noise", "told"),
    [
        (-0.063, 0.08, "-6.3% (-14.3% to +1.7%), noise"),
        (0.25, 0.08, "+25.0% (+17.0% to +33.0%)"),
        (0.1, None, "+10.0%"),
        (None, None, "-"),
    ],
)
def test_a_gain_within_the_noise_is_called_so(gain: float | None, noise: float | None, told: str) -> None:
    row = Comparison(LevelSpec(Loop.CLOSED, 1), 9.4, 10.0, 5.0, gain, noise)
    assert render(Report({}, (), comparisons=(row,))).splitlines()[-1].endswith(f"  {told}")


def test_notes_stand_last() -> None:
    assert render(Report({}, (level(1),), notes=("mind this",))).endswith("\n\nnote: mind this\n")


def test_json_holds_the_fields_under_their_own_names() -> None:
    own, only = (level(4, 30),), (level(4, 20, Role.SPECULATIVE),)
    said = orjson.loads(to_json(Report({"seed": 1}, own, only, ("n",), comparisons=compare(own, only))))
    assert said["config"] == {"seed": 1}
    assert said["levels"][0]["tokens_per_s"] == pytest.approx(12)
    assert said["levels"][0]["ttft_s"]["p50"] == pytest.approx(1)
    assert said["only"][0]["asked"] == "speculative"
    assert said["comparisons"][0]["only_baseline"] is None


@pytest.mark.parametrize(
    ("spec", "name"), [(LevelSpec(Loop.CLOSED, 8.0), "concurrency 8"), (LevelSpec(Loop.OPEN, 0.5), "rate 0.5/s")]
)
def test_a_level_is_named_by_its_loop(spec: LevelSpec, name: str) -> None:
    assert level_name(spec) == name
