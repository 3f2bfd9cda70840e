"""A file of measured speeds is read whole, or every problem in it is told with its place and its mend."""

import math
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.curves import NAME, context, measured, one_sided, write
from hypothesis import given
from hypothesis import strategies as st

from proxy.config import InvalidConfig, Settings, differences, from_mapping, load
from proxy.config.curves_file import MAX_FILE_BYTES, read_curves
from proxy.config.marks import mark
from proxy.model import Placement, Policy, Role
from proxy.routing.curves import Curves, SpeedPoint
from proxy.routing.verdict import Contrast, Crossing, Verdict, VerdictKind

TWICE = [*context()["crossings"], *context()["crossings"]]
BACKENDS = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:2"}}

LOOKED_AT_BY_PEOPLE = """\
version: 1
measured_at: 2026-11-30T04:12:00Z
placement: shared
engines: {speculative: 0.5, baseline: null}
contexts:
  - context_tokens: 1024
    verdict: crossover_at
    crossings: [{at: 5.6, low: 5, high: 7, faster_above: baseline}]
    speculative: [{in_flight: 1, tok_s: 80.9, low: 79.8, high: 82.1}, {in_flight: 8, tok_s: 200, predicted: true}]
    ratio: [{in_flight: 1, ratio: 0.5, low: 0.25}]
  - context_tokens: 8192
    verdict: unknown
    reason: "too noisy"
    crossings:
    baseline: [{in_flight: 1, tok_s: 70}]
"""

MISTAKEN = """\
version: 1
measured_at: yesterday
placement: split
models: m
contexts:
  - context_tokens: 1024
    verdict: crossover
    crossings: [{at: 9, low: 5, high: 7, faster_above: baseline}]
    speculative:
      - {in_flight: 1}
      - {in_flight: 8, tok_s: -2}
      - {in_flight: 9, tok_s: 20, low: 21}
    baseline: [{in_flight: 2, tok_s: 70}, {in_flight: 1, tok_s: 1}]
    ratio: [{in_flight: 1, ratio: 0.9, high: .inf}]
  - context_tokens: 1k
    verdict: unknown
version: 1
"""
# Where each of the mistakes is, its key, and a word that its message holds.
TOLD = [
    (2, "measured_at", "date and time"),
    (3, "placement", "one of separate, shared"),
    (4, "models", "did you mean model?"),
    (7, "contexts.0.verdict", "did you mean crossover_at?"),
    (8, "contexts.0.crossings.0", "9 does not"),
    (10, "contexts.0.speculative.0.tok_s", "is required"),
    (11, "contexts.0.speculative.1.tok_s", "output tokens a second, not -2"),
    (12, "contexts.0.speculative.2", "20 does not"),
    (13, "contexts.0.baseline", "1 follows 2"),
    (14, "contexts.0.ratio.0.high", "must be a number"),
    (15, "contexts.1.context_tokens", "whole number"),
    (17, "version", "given twice"),
]


def read(folder: Path, values: dict[str, Any] | str) -> Curves:
    """The speeds of a file without a problem."""
    curves, problems = read_curves(written(folder, values))
    assert problems == []
    assert curves is not None
    return curves


def told(folder: Path, values: dict[str, Any] | str) -> list[str]:
    """Every problem of a file, its folder cut away."""
    curves, problems = read_curves(written(folder, values))
    assert curves is None
    return [str(problem).replace(f"{folder}/", "") for problem in problems]


def written(folder: Path, values: dict[str, Any] | str) -> Path:
    return write(folder, values) if isinstance(values, dict) else text(folder, values)


def text(folder: Path, words: str) -> Path:
    (folder / NAME).write_text(words)
    return folder / NAME


# ---------------------------------------------------------------- what is read


def test_all_of_a_file_is_read(tmp_path: Path) -> None:
    curves = read(tmp_path, LOOKED_AT_BY_PEOPLE)
    assert (curves.measured_at, curves.placement, curves.model) == ("2026-11-30T04:12:00Z", Placement.SHARED, None)
    assert curves.versions == {Role.SPECULATIVE: "0.5"}, "a version made of digits is still text"
    short, long = curves.contexts
    assert short.verdict == Verdict(VerdictKind.CROSSOVER_AT, (Crossing(5.6, 5, 7, Role.BASELINE),))
    assert short.speculative is not None
    assert short.speculative.points == (SpeedPoint(1, 80.9, 79.8, 82.1), SpeedPoint(8, 200, predicted=True))
    assert short.baseline is None
    assert short.contrasts == (Contrast(1, math.log(0.5), math.log(0.25), math.inf),)
    assert long.verdict == Verdict(VerdictKind.UNKNOWN, (), "too noisy")
    assert curves.at_context(9000) is long


# ---------------------------------------------------------------- what is refused


def test_every_mistake_is_told_at_once_with_its_line_its_key_and_a_mend(tmp_path: Path) -> None:
    _, problems = read_curves(text(tmp_path, MISTAKEN))
    found = sorted((problem.line, problem.key, problem.message) for problem in problems)
    assert [(line, key) for line, key, _ in found] == [(line, key) for line, key, _ in TOLD]
    for (_, _, message), (_, _, word) in zip(found, TOLD, strict=True):
        assert word in message
        assert "mend: " in message or "did you mean" in message


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_version_is_the_one_thing_that_is_told(tmp_path: Path, version: int) -> None:
    (problem,) = told(tmp_path, f"contexts: what this holds\nversion: {version}\n")
    assert problem.startswith(f"{NAME}:2:1: version: must be 1, which is the form that this Crossover reads; mend: ")


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"contexts": []}, "contexts", "at least one bucket of context"),
        ({"contexts": [context(), context()]}, "contexts", "context_tokens must rise, and 1024 follows 1024"),
        ({"contexts": [context(crossings=[])]}, "contexts.0", "has no crossings, and its verdict is crossover_at"),
        ({"contexts": [context(verdict="unknown")]}, "contexts.0", "has crossings, and its verdict is unknown"),
        ({"contexts": [context(crossings=TWICE)]}, "contexts.0.crossings", "crossings must rise"),
        ({"contexts": [context(context_tokens=-1)]}, "contexts.0.context_tokens", "allowed: 0 to"),
        ({"contexts": [context(ratio=[{"in_flight": 1, "ratio": 2, "low": 3}])]}, "contexts.0.ratio.0", "2 does not"),
        ({"version": "1"}, "version", "must be a whole number, not the text"),
        ({"version": None}, "version", "must be a whole number"),
        ({"placement": 3}, "placement", "one of separate, shared"),
        ({"engines": {"speculativ": "1"}}, "engines.speculativ", "did you mean speculative?"),
        ({"model": ["m"]}, "model", "must be text"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Any], key: str, message: str) -> None:
    (problem,) = read_curves(write(tmp_path, measured(**changes)))[1]
    assert problem.key == key
    assert problem.line > 0
    assert message in problem.message


@pytest.mark.parametrize("missing", ["version", "measured_at", "placement", "contexts"])
def test_a_key_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    values = {name: value for name, value in measured().items() if name != missing}
    (problem,) = read_curves(write(tmp_path, values))[1]
    assert (problem.key, problem.message.partition(";")[0]) == (missing, "is required")


@pytest.mark.parametrize("words", ["", "- 1\n", "just words\n", "{", "a: &b 1\n", "version: [\n"])
def test_what_is_no_such_file_is_told_and_never_raises(tmp_path: Path, words: str) -> None:
    assert told(tmp_path, words)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"#" * (MAX_FILE_BYTES + 1)])
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(ValueError, match="names a file"):
        read_curves(tmp_path / NAME)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(ValueError, match="no regular file"):
        read_curves(tmp_path / NAME)


@given(
    st.sampled_from(["context_tokens", "verdict", "reason", "crossings", "speculative", "baseline", "ratio"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["in_flight", "at"]), inner),
        max_leaves=6,
    ),
)
def test_any_value_in_any_place_is_read_or_told(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: object
) -> None:
    folder = tmp_path_factory.getbasetemp()
    curves, problems = read_curves(write(folder, measured(contexts=[context(**{name: value})])))
    assert (curves is None) == bool(problems)


# ---------------------------------------------------------------- as settings name it


def settled(folder: Path, words: str = f"routing: {{curves_file: {NAME}}}\n") -> Settings:
    (folder / "crossover.yaml").write_text(yaml.safe_dump({"backends": BACKENDS}) + words)
    return load(folder / "crossover.yaml", {})


def test_the_file_is_read_beside_the_configuration_and_watched(tmp_path: Path) -> None:
    path = write(tmp_path, measured())
    settings = settled(tmp_path)
    assert settings.sources.curves is not None
    assert settings.sources.curves.measured_at == "2026-11-30T04:12:00Z"
    assert settings.sources.marks[path] == mark(path)


def test_its_problems_stand_beside_those_of_the_configuration_and_it_is_watched_for_the_mend(tmp_path: Path) -> None:
    path = write(tmp_path, measured(placement="split"))
    with pytest.raises(InvalidConfig) as caught:
        settled(tmp_path, f"routing: {{curves_file: {NAME}}}\nqueue: 5\n")
    assert {problem.key for problem in caught.value.problems} == {"placement", "queue"}
    assert path in caught.value.marks


def test_a_file_that_is_not_there_is_told_at_the_key_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig) as caught:
        settled(tmp_path)
    (problem,) = caught.value.problems
    assert problem.key == "routing.curves_file"
    assert f"names no regular file: {tmp_path.absolute() / NAME}; mend: " in problem.message


def test_the_prefill_of_either_backend_is_read_where_it_is_told(tmp_path: Path) -> None:
    told = context(speculative_prefill_tok_s=7352, baseline_prefill_tok_s=7400.5)
    curves = read(tmp_path, yaml.safe_dump(measured(contexts=[told, context(context_tokens=8192)])))
    assert [each.prefill_tok_s for each in curves.contexts] == [(7352.0, 7400.5), (None, None)]


def test_a_policy_that_needs_speeds_which_the_file_lacks_is_refused(tmp_path: Path) -> None:
    write(tmp_path, measured(contexts=[context(), context(context_tokens=8192, speculative=[])]))
    with pytest.raises(InvalidConfig) as caught:
        settled(tmp_path, f"routing: {{curves_file: {NAME}, policy: marginal}}\n")
    (problem,) = caught.value.problems
    assert (problem.key, problem.line) == ("routing.curves_file", 6)
    assert problem.message == (
        "has no speeds of the speculative backend at 8192 tokens of context, and policy marginal places requests by "
        "those of both; mend: calibrate both backends, or set policy: auto"
    )


def test_a_verdict_that_is_not_known_hinders_no_policy(tmp_path: Path) -> None:
    write(tmp_path, measured(contexts=[one_sided("unknown")]))
    rules = settled(tmp_path, f"routing: {{curves_file: {NAME}, policy: marginal}}\n").rules()
    assert rules.effective_policy is Policy.MARGINAL


def test_without_a_file_there_are_no_curves() -> None:
    assert from_mapping({"backends": BACKENDS}).sources.curves is None


def test_other_speeds_in_the_same_file_are_a_difference(tmp_path: Path) -> None:
    write(tmp_path, measured())
    before = settled(tmp_path)
    write(tmp_path, measured(measured_at="2026-12-01T00:00:00Z", contexts=[one_sided("never_speculate")]))
    changes = differences(before, settled(tmp_path))
    assert [(each.key, each.old, each.new) for each in changes] == [
        ("curves", "2026-11-30T04:12:00Z", "2026-12-01T00:00:00Z")
    ]


@pytest.mark.parametrize("name", ["seed", "rtx6kpro_glm51_dcp4_ctx16384"])
def test_a_published_curve_is_told_in_one_line_with_the_way_out(name: str) -> None:
    path = Path(__file__).parents[1] / "config" / "curves" / f"{name}.json"
    written = {"backends": BACKENDS, "placement": "separate", "routing": {"policy": "marginal"}}
    written["routing"]["curves_file"] = str(path)
    with pytest.raises(InvalidConfig) as raised:
        from_mapping(written)
    (problem,) = raised.value.problems
    assert "published curve of one context" in problem.message
    assert "scripts/calibrate" in problem.message
    assert f"`scripts/serve --curve {name}`" in problem.message
