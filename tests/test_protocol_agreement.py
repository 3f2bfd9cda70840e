"""What is warned of when two engines are compared."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import EngineFacts, Role
from proxy.protocol.allowlist import EngineKind
from proxy.protocol.engines import disagreements, ghosts

SPECULATIVE = EngineFacts("m", "0.5.23", 4096, "v1", 256, "EAGLE3")
BASELINE = EngineFacts("m", "0.5.23", 4096, "v1", 2048)


SGLANG = dict.fromkeys(Role, EngineKind.SGLANG)


def codes(speculative: EngineFacts, baseline: EngineFacts = BASELINE) -> list[str]:
    return [found.code for found in disagreements(speculative, baseline, SGLANG)]


def test_a_good_pair_agrees() -> None:
    assert codes(SPECULATIVE) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"model": "other"}, "model_differs"),
        ({"context_length": 2048}, "context_differs"),
        ({"weight_version": "v2"}, "weights_differ"),
        ({"speculative_algorithm": None}, "speculative_does_not_speculate"),
        ({"speculative_adaptive": True}, "speculative_adapts"),
        ({"max_running_requests": 48}, "speculative_limit_default"),
        ({"version": "0.5.18"}, "disconnect_broken"),
        ({"version": "0.5.19.post1"}, "disconnect_broken"),
        ({"version": "0.5.17"}, "version_old"),
    ],
)
def test_one_difference_is_one_warning(change: dict[str, object], code: str) -> None:
    assert codes(replace(SPECULATIVE, **change)) == [code]  # type: ignore[arg-type]


def test_faults_of_the_baseline_are_seen() -> None:
    assert codes(SPECULATIVE, replace(BASELINE, speculative_algorithm="EAGLE")) == ["baseline_speculates"]
    assert codes(SPECULATIVE, replace(BASELINE, version="0.5.19")) == ["disconnect_broken"]
    assert codes(SPECULATIVE, replace(BASELINE, max_running_requests=48)) == []


def test_a_limit_that_both_have_was_chosen() -> None:
    both = [replace(each, max_running_requests=48) for each in (SPECULATIVE, BASELINE)]
    assert codes(*both) == []
    assert codes(both[0], replace(BASELINE, max_running_requests=None)) == ["speculative_limit_default"]


def test_swapped_backends_are_told_twice() -> None:
    assert codes(BASELINE, SPECULATIVE) == ["speculative_does_not_speculate", "baseline_speculates"]


def test_messages_tell_the_mend() -> None:
    limit = disagreements(replace(SPECULATIVE, max_running_requests=48), BASELINE, SGLANG)[0].message
    assert "--max-running-requests" in limit
    assert "runs at most 48 sequences at once" in limit and "where no limit is set" in limit
    old = disagreements(SPECULATIVE, replace(BASELINE, version="0.5.18"), SGLANG)[0].message
    assert "baseline backend runs 0.5.18" in old
    assert "upgrade to >= 0.5.20" in old


@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        (EngineKind.SGLANG, ("--served-model-name", "--context-length", "--speculative-algorithm")),
        (EngineKind.VLLM, ("--served-model-name", "--max-model-len", "--speculative-config")),
        (EngineKind.LLAMACPP, ("--alias", "--ctx-size", "--model-draft")),
    ],
)
def test_the_mend_names_the_options_of_the_engine_that_is_there(kind: EngineKind, flags: tuple[str, ...]) -> None:
    other = replace(BASELINE, model="other", context_length=2048)
    found = disagreements(replace(SPECULATIVE, speculative_algorithm=None), other, dict.fromkeys(Role, kind))
    assert len(found) == len(flags)
    for each, flag in zip(found, flags, strict=True):
        assert f" {flag}" in each.message
        assert each.message.count("--") == 1


def test_two_kinds_of_engines_are_told_both_options_and_an_unknown_one_none() -> None:
    other = replace(BASELINE, context_length=2048)
    mixed = {Role.SPECULATIVE: EngineKind.SGLANG, Role.BASELINE: EngineKind.LLAMACPP}
    (found,) = disagreements(SPECULATIVE, other, mixed)
    assert "--context-length and --ctx-size" in found.message
    (found,) = disagreements(SPECULATIVE, other, {**mixed, Role.BASELINE: EngineKind.OPENAI})
    assert "--" not in found.message


@pytest.mark.parametrize("kind", [EngineKind.VLLM, EngineKind.LLAMACPP, EngineKind.OPENAI])
def test_what_is_wrong_with_sglang_alone_is_told_of_no_other_engine(kind: EngineKind) -> None:
    alike = replace(SPECULATIVE, max_running_requests=48, version="0.5.18")
    assert disagreements(alike, replace(BASELINE, version="0.5.17"), dict.fromkeys(Role, kind)) == []


def test_what_is_not_said_is_not_held_against_an_engine() -> None:
    assert codes(EngineFacts(), EngineFacts()) == []
    assert codes(EngineFacts(model="m"), EngineFacts(context_length=4096)) == []


@pytest.mark.parametrize("version", ["0.5.18", "0.5.19", "v0.5.19", "0.5.18.post1", "0.5.19rc1"])
def test_versions_with_ghosts_have_them(version: str) -> None:
    assert ghosts(version)


@pytest.mark.parametrize(
    "version", [None, "", "0.5.17", "0.5.20", "0.5.180", "10.5.18", "0.33.0", "0.0.0.dev1+g12", "x"]
)
def test_versions_without_ghosts_have_none(version: str | None) -> None:
    assert not ghosts(version)


@given(
    st.builds(EngineFacts, version=st.none() | st.text() | st.from_regex(r"v?\d+\.\d+\.\d+.*")), st.builds(EngineFacts)
)
def test_any_facts_are_compared_without_raising(speculative: EngineFacts, baseline: EngineFacts) -> None:
    found = codes(speculative, baseline)
    assert len(found) <= 8
