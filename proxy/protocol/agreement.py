"""Compares what the two engines say of themselves, and tells the operator what clients or the count would notice.

Not here: reading the answers (engines.py), and what is done about a disagreement: these are warnings.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from proxy.model import EngineFacts, Role
from proxy.protocol.allowlist import EngineKind

SPECULATIVE_DEFAULT_LIMIT = 48
"""What SGLang sets for max_running_requests when speculation is on and the flag is absent; without speculation its
default is 2048 to 4096. Its answers do not tell whether the flag was there: where the baseline runs as many, it was."""

FIXED_VERSION = (0, 5, 20)
"""The first SGLang that ends every sequence of a client that left."""

_GHOST_VERSIONS = frozenset({(0, 5, 18), (0, 5, 19)})
_VERSION = re.compile(r"v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})")


class _Flags(NamedTuple):
    """The options of one kind of engine that mend what is found; empty where it has none, or none is known."""

    model: str = ""
    context: str = ""
    weights: str = ""
    drafting: str = ""


_FLAGS = {
    EngineKind.SGLANG: _Flags("--served-model-name", "--context-length", "--weight-version", "--speculative-algorithm"),
    EngineKind.VLLM: _Flags("--served-model-name", "--max-model-len", "--revision", "--speculative-config"),
    EngineKind.LLAMACPP: _Flags("--alias", "--ctx-size", "--model", "--model-draft"),
    EngineKind.OPENAI: _Flags(),
}


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One thing worth a warning: a code from a closed set, and a message that tells the mend."""

    code: str
    message: str


def disagreements(
    speculative: EngineFacts, baseline: EngineFacts, kinds: Mapping[Role, EngineKind]
) -> list[Disagreement]:
    """What differs between the engines or is wrong with one of them; empty where all is well.

    What an engine does not say is not held against it. An engine that tells no version (vLLM's model list) is not
    asked whether it speculates. Defaults and versions that are known to be bad are SGLang's.
    """
    facts = {Role.SPECULATIVE: speculative, Role.BASELINE: baseline}
    sglang = [role for role in facts if kinds[role] is EngineKind.SGLANG]
    flags = {role: _FLAGS[kinds[role]] for role in facts}
    return [
        *_differing(speculative, baseline, tuple(flags.values())),
        *_roles(speculative, baseline, flags),
        *(_limit(speculative, baseline) if Role.SPECULATIVE in sglang else ()),
        *(each for role in sglang for each in _version(role, facts[role])),
    ]


def ghosts(version: str | None) -> bool:
    """Whether this SGLang decodes on after a streaming client has left: 0.5.18 and 0.5.19, pre-releases included."""
    return _numbers(version) in _GHOST_VERSIONS


def _differing(speculative: EngineFacts, baseline: EngineFacts, flags: tuple[_Flags, ...]) -> list[Disagreement]:
    model, context, weights, _ = map(_mend, zip(*flags, strict=True))
    compared = (
        ("model_differs", "served model name", speculative.model, baseline.model, model),
        ("context_differs", "context length", speculative.context_length, baseline.context_length, context),
        ("weights_differ", "weight version", speculative.weight_version, baseline.weight_version, weights),
    )
    return [
        Disagreement(
            code,
            f"the {what} of the backends differs: speculative {ours}, baseline {theirs}; clients will see either,"
            f" so {mend}",
        )
        for code, what, ours, theirs, mend in compared
        if ours is not None and theirs is not None and ours != theirs
    ]


def _mend(flags: Iterable[str]) -> str:
    """How two engines come to have the same of something."""
    known = list(dict.fromkeys(flags))
    if not all(known):
        return "let both have the same"
    if len(known) == 1:
        return f"start both with the same {known[0]}"
    return f"give both the same, by {known[0]} and {known[1]}"


def _roles(speculative: EngineFacts, baseline: EngineFacts, flags: Mapping[Role, _Flags]) -> list[Disagreement]:
    drafting = {role: each.drafting or "speculation" for role, each in flags.items()}
    found = []
    if speculative.version is not None and speculative.speculative_algorithm is None:
        found.append(
            Disagreement(
                "speculative_does_not_speculate",
                "the backend in the speculative role does not speculate; start it with"
                f" {drafting[Role.SPECULATIVE]}, or swap the backends' urls",
            )
        )
    if baseline.speculative_algorithm is not None:
        found.append(
            Disagreement(
                "baseline_speculates",
                f"the backend in the baseline role speculates ({baseline.speculative_algorithm}); start it without"
                f" {drafting[Role.BASELINE]}, or swap the backends' urls",
            )
        )
    if speculative.speculative_adaptive:
        found.append(
            Disagreement(
                "speculative_adapts",
                "the speculative backend also adapts its draft steps to its batch (--speculative-adaptive): two rules"
                " then decide on one thing; measure it with and without the flag, and keep the better",
            )
        )
    return found


def _limit(speculative: EngineFacts, baseline: EngineFacts) -> list[Disagreement]:
    if speculative.max_running_requests != SPECULATIVE_DEFAULT_LIMIT:
        return []
    if baseline.max_running_requests == SPECULATIVE_DEFAULT_LIMIT:
        return []
    others = "" if baseline.max_running_requests is None else f", the baseline {baseline.max_running_requests:,}"
    return [
        Disagreement(
            "speculative_limit_default",
            f"the speculative backend runs at most {SPECULATIVE_DEFAULT_LIMIT} sequences at once{others}; unless you"
            " chose that, it is what SGLang takes with speculation where no limit is set; start both backends with the"
            " same --max-running-requests, else speculative counts as full, and is measured as slow, while it has room",
        )
    ]


def _version(role: Role, facts: EngineFacts) -> list[Disagreement]:
    numbers = _numbers(facts.version)
    if numbers is None or numbers >= FIXED_VERSION:
        return []
    wanted = ".".join(map(str, FIXED_VERSION))
    if numbers in _GHOST_VERSIONS:
        message = (
            f"the {role} backend runs {facts.version}, which decodes on for clients that have left; their sequences"
            f" stay counted until their usual end; upgrade to >= {wanted}"
        )
        return [Disagreement("disconnect_broken", message)]
    message = (
        f"the {role} backend runs {facts.version}, which may decode on for clients that left a request with n > 1;"
        f" upgrade to >= {wanted}"
    )
    return [Disagreement("version_old", message)]


def _numbers(version: str | None) -> tuple[int, int, int] | None:
    """The three numbers of a version; None where there are none, or zeros only, as unreleased builds have."""
    match = _VERSION.match(version or "")
    if match is None:
        return None
    major, minor, patch = (int(part) for part in match.groups())
    return (major, minor, patch) if major or minor or patch else None
