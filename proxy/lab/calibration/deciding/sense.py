"""Whether what is asked of these engines makes sense, before an hour goes into it. What they say of themselves is all
that is looked at; no request is sent."""

from collections.abc import Mapping

from proxy.errors import ConfigError
from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.values import Arm, ArmFacts


def refuse_nonsense(aim: Aim, facts: Mapping[Arm, ArmFacts]) -> None:
    """Raises ConfigError, which tells the mend, where nothing could come of the run."""
    _refuse_twins(facts)
    _refuse_swapped(facts)
    for one in facts.values():
        _refuse_context(aim, one)


def _refuse_twins(facts: Mapping[Arm, ArmFacts]) -> None:
    seen: dict[str, Arm] = {}
    for arm, one in facts.items():
        if one.url in seen:
            raise ConfigError(f"{arm} and {seen[one.url]} are one engine ({one.url}); mend: give each its own address")
        seen[one.url] = arm


def _refuse_swapped(facts: Mapping[Arm, ArmFacts]) -> None:
    speculative, baseline = facts.get(Arm.SPECULATIVE), facts.get(Arm.BASELINE)
    if baseline is None or baseline.speculative_algorithm is None:
        return
    if speculative is not None and speculative.speculative_algorithm is None and speculative.engine == baseline.engine:
        raise ConfigError(
            f"the baseline at {baseline.url} speculates ({baseline.speculative_algorithm}), and the speculative engine "
            f"at {speculative.url} does not; mend: swap the backends' urls"
        )


def _refuse_context(aim: Aim, facts: ArmFacts) -> None:
    limit = facts.most_context_tokens
    # Half of the answer is context on average while it is decoded, and all of it at its end.
    longest = max(aim.contexts) + aim.max_tokens // 2
    if limit is not None and longest > limit:
        raise ConfigError(
            f"--context {max(aim.contexts)} with answers of {aim.max_tokens} tokens is longer than the {limit} tokens "
            f"that the {facts.arm} engine takes; mend: ask for less, or start it with a greater context (SGLang: "
            "--context-length; llama.cpp: --ctx-size, which its slots share)"
        )
