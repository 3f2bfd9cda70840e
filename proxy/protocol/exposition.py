"""Reads running and waiting sequences from an engine's Prometheus text. Nothing else of it is looked at.

Not here: our own metrics, and the answers of other routes (engines.py).
"""

import re

from proxy.model import EngineLoad

MAX_SEQUENCES = 1e9
"""Counts above it are nonsense, infinity among them."""

_SAMPLE = re.compile(
    r"^(vllm:num_requests_running|vllm:num_requests_waiting|sglang:num_running_reqs|sglang:num_queue_reqs"
    r"|llamacpp:requests_processing|llamacpp:requests_deferred)"
    r"(?:\{(.*)\})?[ \t]+(\S+)",
    re.MULTILINE,
)
# A name is looked for where a word begins, or a long word would be looked at from each of its letters on.
_LABEL = re.compile(r'\b(\w+)="((?:[^"\\]|\\.)*)"')
# The gauge of what runs, and of what waits.
_GAUGES = (
    ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    ("llamacpp:requests_processing", "llamacpp:requests_deferred"),
)
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


def parse_metrics(text: str) -> EngineLoad | None:
    """The load in a Prometheus exposition; None where no engine's running gauge is in it. Never raises.

    vLLM's series are one for each engine and are summed. SGLang's ranks of one replica each tell the same number, so
    of every data-parallel replica the lowest rank's series counts, and of priorities the total (label "").
    """
    counts: dict[str, dict[tuple[str, str], tuple[tuple[int, ...], float]]] = {}
    for name, labels, value in _SAMPLE.findall(text):
        known = dict(_LABEL.findall(labels))
        number = _number(value)
        if number is None or known.get("priority"):
            continue
        replica, rank = _place(known)
        series = counts.setdefault(name, {})
        if replica not in series or rank < series[replica][0]:
            series[replica] = (rank, number)
    for running, waiting in _GAUGES:
        if running in counts:
            return EngineLoad(running=_sum(counts[running]), waiting=_sum(counts.get(waiting, {})))
    return None


def _place(labels: dict[str, str]) -> tuple[tuple[str, str], tuple[int, ...]]:
    """Which replica a series is of, and its rank in it."""
    replica = (labels.get("dp_rank", ""), labels.get("engine", ""))
    ranks = (labels.get(name, "0") for name in _RANKS)
    return replica, tuple(int(rank) if rank.isascii() and rank.isdecimal() and len(rank) < 9 else 0 for rank in ranks)


def _sum(series: dict[tuple[str, str], tuple[tuple[int, ...], float]]) -> int:
    return int(sum(number for _, number in series.values()))


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number <= MAX_SEQUENCES else None
