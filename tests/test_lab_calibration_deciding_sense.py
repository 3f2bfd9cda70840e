"""What is refused before an hour goes into it."""

from dataclasses import replace

import pytest
from fakes.cells import facts

from proxy.errors import ConfigError
from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.deciding.sense import refuse_nonsense
from proxy.lab.calibration.values import Arm, ArmFacts


def box(**speculative: object) -> dict[Arm, ArmFacts]:
    named = facts(flags={"context_length": "8192"})
    plain = {arm: replace(one, url=f"http://127.0.0.1:{port}") for port, (arm, one) in enumerate(named.items(), 1)}
    plain[Arm.SPECULATIVE] = replace(plain[Arm.SPECULATIVE], speculative_algorithm="EAGLE3")
    plain[Arm.SPECULATIVE] = replace(plain[Arm.SPECULATIVE], **speculative)  # type: ignore[arg-type]
    return plain


def test_engines_as_they_should_be_pass() -> None:
    refuse_nonsense(Aim(contexts=(1024, 8000)), box())
    silent = {arm: replace(one, flags={}) for arm, one in box().items()}
    refuse_nonsense(Aim(contexts=(10**6,)), silent)


def test_backends_that_changed_places_are_named() -> None:
    swapped = box()
    swapped[Arm.SPECULATIVE], swapped[Arm.BASELINE] = swapped[Arm.BASELINE], swapped[Arm.SPECULATIVE]
    with pytest.raises(ConfigError, match="swap the backends' urls"):
        refuse_nonsense(Aim(), swapped)


def test_an_engine_that_does_not_say_whether_it_speculates_is_believed() -> None:
    refuse_nonsense(Aim(), box(speculative_algorithm=None))


@pytest.mark.parametrize("flag", ["context_length", "slot_context"])
def test_a_context_beyond_what_an_engine_takes_is_named_with_both_numbers(flag: str) -> None:
    with pytest.raises(ConfigError, match=r"--context 8192 .* 8192 tokens .*--context-length"):
        refuse_nonsense(Aim(contexts=(1024, 8192)), box(flags={flag: "8192"}))


def test_one_engine_under_two_arms_is_refused() -> None:
    twins = box()
    twins[Arm.ADAPTIVE] = replace(twins[Arm.ADAPTIVE], url=twins[Arm.SPECULATIVE].url)
    with pytest.raises(ConfigError, match="adaptive and speculative are one engine"):
        refuse_nonsense(Aim(), twins)
