"""Reads sequences, generated tokens and the size of the cache from an engine's Prometheus text, and nothing else.

Not here: our own metrics, and the answers of other routes (engines.py).
"""

import re

from proxy.model import EngineLoad

MAX_SEQUENCES = 1e9
"""Counts above it are nonsense, infinity among them."""

MAX_TOKENS = 1e18
"""The same of tokens since an engine's start."""

_SAMPLE = re.compile(
    r"^(vllm:num_requests_running|vllm:num_requests_waiting|vllm:generation_tokens_total|vllm:cache_config_info"
    r"|sglang:num_running_reqs|sglang:num_queue_reqs|sglang:generation_tokens_total"
    r"|llamacpp:requests_processing|llamacpp:requests_deferred)"
    r"(?:\{(.*)\})?[ \t]+(\S+)",
    re.MULTILINE,
)
# A name is looked for where a word begins, or a long word would be looked at from each of its letters on.
_LABEL = re.compile(r'\b(\w+)="((?:[^"\\]|\\.)*)"')
# The gauge of what runs, and of what waits, and the counter of what was generated. llama.cpp counts the tokens of an
# answer at its end, which tells of no speed.
_SERIES = (
    ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:generation_tokens_total"),
    ("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:generation_tokens_total"),
    ("llamacpp:requests_processing", "llamacpp:requests_deferred", ""),
)
_COUNTERS = tuple(generated for _, _, generated in _SERIES if generated)
# vLLM tells its cache by labels, one series for each engine.
_CACHE = "vllm:cache_config_info"
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


def parse_metrics(text: str) -> EngineLoad | None:
    """The load in a Prometheus exposition; None where no engine's running gauge is in it. Never raises.

    vLLM's series are one for each engine and are summed. SGLang's ranks of one replica each tell the same number, so
    of every data-parallel replica the lowest rank's series counts, and of priorities the total (label "").
    """
    counts: dict[str, dict[tuple[str, str], tuple[tuple[int, ...], float]]] = {}
    caches: list[dict[str, str]] = []
    for name, labels, value in _SAMPLE.findall(text):
        known = dict(_LABEL.findall(labels))
        if name == _CACHE:
            caches.append(known)
            continue
        number = _number(value, MAX_TOKENS if name in _COUNTERS else MAX_SEQUENCES)
        if number is None or known.get("priority"):
            continue
        replica, rank = _place(known)
        series = counts.setdefault(name, {})
        if replica not in series or rank < series[replica][0]:
            series[replica] = (rank, number)
    for running, waiting, generated in _SERIES:
        if running in counts:
            tokens = counts.get(generated)
            return EngineLoad(
                running=_sum(counts[running]),
                waiting=_sum(counts.get(waiting, {})),
                kv_tokens=_kv_tokens(caches),
                ranks=len(tokens) if tokens else 1,
                generated=None if tokens is None else float(_sum(tokens)),
            )
    return None


def _kv_tokens(caches: list[dict[str, str]]) -> int | None:
    """Tokens that the caches of all engines hold, 0 where they keep no prefixes; None where one does not say."""
    if any(cache.get("enable_prefix_caching") == "False" for cache in caches):
        return 0
    tokens = 0
    for cache in caches:
        blocks, size = (cache.get(name, "") for name in ("num_gpu_blocks", "block_size"))
        if not all(word.isascii() and word.isdecimal() and len(word) < 9 for word in (blocks, size)):
            return None
        tokens += int(blocks) * int(size)
    return min(tokens, int(MAX_TOKENS)) or None


def _place(labels: dict[str, str]) -> tuple[tuple[str, str], tuple[int, ...]]:
    """Which replica a series is of, and its rank in it."""
    replica = (labels.get("dp_rank", ""), labels.get("engine", ""))
    ranks = (labels.get(name, "0") for name in _RANKS)
    return replica, tuple(int(rank) if rank.isascii() and rank.isdecimal() and len(rank) < 9 else 0 for rank in ranks)


def _sum(series: dict[tuple[str, str], tuple[tuple[int, ...], float]]) -> int:
    return int(sum(number for _, number in series.values()))


def _number(value: str, most: float) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number <= most else None
