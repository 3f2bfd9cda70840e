"""What to do with the engines themselves after a calibration, each in a sentence with its numbers.

What the configuration can do by itself is in proposal.py. The order says what comes first: what makes the measurement
worth more, then what gains most.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from proxy.lab.calibration.advice.gpus import (
    haproxy_or_crossover,
    second_baseline,
    see,
    try_chain,
    use_adaptive,
)
from proxy.lab.calibration.advice.kinds import Advice, AdviceKind
from proxy.lab.calibration.advice.measuring import (
    client_limit,
    context_moves,
    noisy,
    raise_max_running,
    unequal_arms,
)
from proxy.lab.calibration.values import Findings

__all__ = ["Advice", "AdviceKind", "advise"]

# These want the same GPUs, so only one of them can be carried out at a time.
_EXCLUSIVE = (AdviceKind.USE_ADAPTIVE, AdviceKind.SECOND_BASELINE, AdviceKind.TRY_CHAIN)
# These say what the measurement is worth, and come before all that rests on it.
_FIRST = (AdviceKind.UNEQUAL_ARMS, AdviceKind.CLIENT_LIMIT, AdviceKind.NOISY)


def advise(findings: Findings) -> tuple[Advice, ...]:
    """All that follows from the findings, in the order to go by."""
    about_measuring = (unequal_arms, client_limit, noisy, raise_max_running, context_moves)
    found = list(chain.from_iterable(rule(findings) for rule in about_measuring))
    if findings.main:
        seen = see(findings)
        found += chain.from_iterable(
            rule(seen) for rule in (use_adaptive, second_baseline, try_chain, haproxy_or_crossover)
        )
    return tuple(_ranked(sorted(found, key=_place)))


def _place(advice: Advice) -> tuple[int, float, int]:
    kinds = list(AdviceKind)
    first = 0 if advice.kind in _FIRST else 2
    if advice.kind is AdviceKind.RAISE_MAX_RUNNING and advice.numbers.get("queued_cells"):
        first = 1
    return first, -advice.numbers.get("gain", 0.0), kinds.index(advice.kind)


def _ranked(found: Sequence[Advice]) -> Iterator[Advice]:
    """Says of those that want the same GPUs which comes first."""
    rivals = [one.kind for one in found if one.kind in _EXCLUSIVE]
    for one in found:
        if len(rivals) < 2 or one.kind not in rivals:
            yield one
        elif one.kind is rivals[0]:
            yield replace(one, sentence=f"{one.sentence} Of what these GPUs could be used for this promises most.")
        else:
            better = _named(rivals[0])
            yield replace(one, sentence=f"{one.sentence} It needs the same GPUs as {better}, which comes first.")


def _named(kind: AdviceKind) -> str:
    names = {
        AdviceKind.USE_ADAPTIVE: "the adaptive instance",
        AdviceKind.SECOND_BASELINE: "the second baseline",
        AdviceKind.TRY_CHAIN: "the chain",
    }
    return names[kind]
