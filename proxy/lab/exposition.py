"""The Prometheus text of an embedded engine, with the names and labels of the real one. Counting is elsewhere."""

from collections.abc import Iterable, Mapping

from proxy.lab.engine import EngineBooks
from proxy.lab.introspection import Introspection
from proxy.lab.observations import Histogram, Observations

Labels = Mapping[str, str]

_RANKS = {"moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}

_GAUGES = {
    "max_total_num_tokens": "Maximum total number of tokens in the KV cache pool.",
    "page_size": "KV cache page size in tokens.",
    "context_len": "Maximum context length.",
    "num_running_reqs": "The number of running requests.",
    "num_queue_reqs": "The number of requests in the waiting queue.",
    "num_grammar_queue_reqs": "The number of requests in the grammar waiting queue.",
    "gen_throughput": "The generation throughput (token/s).",
    "cache_hit_rate": "The prefix cache hit rate.",
    "decode_sum_seq_lens": "The sum of all sequence lengths in decode.",
    "token_usage": "The token usage.",
    "num_used_tokens": "The number of used tokens.",
    "kv_available_tokens": "Number of free token slots in the KV cache pool.",
    "kv_evictable_tokens": "Number of evictable token slots in the KV cache pool.",
    "kv_used_tokens": "Number of actively used token slots in the KV cache pool.",
    "spec_accept_length": "Mean acceptance length of speculative decoding.",
    "spec_accept_rate": "Speculative acceptance rate.",
    "spec_num_steps": "Currently active speculative_num_steps.",
    "spec_num_draft_tokens": "Currently active speculative_num_draft_tokens.",
    "utilization": "The utilization.",
}


def render(books: EngineBooks, about: Introspection, seen: Observations) -> str:
    """The whole text of `/metrics`."""
    engine = {"engine_type": "unified", "model_name": about.model}
    lines: list[str] = []
    for name, value in _gauge_values(books, about).items():
        lines += _family(name, "gauge", _GAUGES[name], [(name, {**engine, **_RANKS}, value)])
    lines += _token_counters(books, about, seen, engine)
    lines += _http(seen)
    by_stream = {"true": True, "false": False}
    for name, text, histograms in (
        ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", seen.ttft),
        ("e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds", seen.e2e),
    ):
        samples = [
            sample
            for label, stream in by_stream.items()
            for sample in _buckets(name, histograms[stream], {**engine, "is_streaming": label})
        ]
        lines += _family(name, "histogram", text, samples)
    gap = "inter_token_latency_seconds"
    lines += _family(gap, "histogram", "Histogram of inter-token latency in seconds.", _buckets(gap, seen.gap, engine))
    return "\n".join(lines) + "\n"


def _gauge_values(books: EngineBooks, about: Introspection) -> dict[str, float]:
    speculative = about.options.speculative
    pool = about.limits.kv_tokens
    return {
        "max_total_num_tokens": pool,
        "page_size": 1,
        "context_len": about.options.context_length,
        "num_running_reqs": books.running,
        "num_queue_reqs": books.waiting,
        "num_grammar_queue_reqs": 0,
        "gen_throughput": books.throughput,
        "cache_hit_rate": about.cache_hit_rate(books),
        "decode_sum_seq_lens": books.context_tokens,
        "token_usage": about.token_usage(books),
        "num_used_tokens": books.used_tokens,
        "kv_available_tokens": max(0, pool - books.used_tokens - books.cached_room_tokens),
        "kv_evictable_tokens": books.cached_room_tokens,
        "kv_used_tokens": books.used_tokens,
        "spec_accept_length": books.accept_length,
        "spec_accept_rate": about.accept_rate(books) if speculative else 0,
        "spec_num_steps": about.curve.num_steps if books.drafting else 0,
        "spec_num_draft_tokens": about.draft_tokens() if books.drafting else 0,
        "utilization": books.running / about.limits.max_running_requests,
    }


def _token_counters(books: EngineBooks, about: Introspection, seen: Observations, engine: Labels) -> list[str]:
    lines: list[str] = []
    for name, text, counter in (
        ("prompt_tokens_total", "Number of prefill tokens processed.", seen.prompt_tokens),
        ("generation_tokens_total", "Number of generation tokens processed.", seen.generation_tokens),
        ("num_requests_total", "Number of requests processed.", seen.requests),
    ):
        samples = [(name, {**engine, "is_streaming": str(s).lower()}, float(counter[s])) for s in (False, True)]
        lines += _family(name, "counter", text, samples)
    if about.options.speculative:
        name = "spec_verify_calls_total"
        text = "Number of speculative decoding verification calls."
        lines += _family(name, "counter", text, [(name, engine, books.verify_calls)])
    modes = (
        ("prefill_compute", books.prefill_tokens),
        ("prefill_cache", books.cached_tokens),
        ("decode", books.generated_tokens),
    )
    name = "realtime_tokens_total"
    samples = [(name, {**engine, **_RANKS, "mode": mode}, float(value)) for mode, value in modes]
    return lines + _family(name, "counter", "Total number of tokens processed.", samples)


def _http(seen: Observations) -> list[str]:
    asked = [
        ("http_requests_total", {"endpoint": path, "method": method}, float(count))
        for (path, method), count in seen.http_requests.items()
    ]
    answered = [
        ("http_responses_total", {"endpoint": path, "method": method, "status_code": str(status)}, float(count))
        for (path, method, status), count in seen.http_responses.items()
    ]
    active = [
        ("http_requests_active", {"endpoint": path, "method": method}, float(count))
        for (path, method), count in seen.http_active.items()
    ]
    return (
        _family("http_requests_total", "counter", "Total number of HTTP requests by endpoint and method", asked)
        + _family("http_responses_total", "counter", "Total number of HTTP responses by endpoint and status", answered)
        + _family("http_requests_active", "gauge", "Number of currently active HTTP requests", active)
    )


def _buckets(name: str, histogram: Histogram, labels: Labels) -> list[tuple[str, Labels, float]]:
    samples: list[tuple[str, Labels, float]] = []
    below = 0
    bounds = [repr(bound) for bound in histogram.bounds] + ["+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        below += count
        samples.append((f"{name}_bucket", {**labels, "le": bound}, below))
    return [*samples, (f"{name}_sum", labels, histogram.sum), (f"{name}_count", labels, below)]


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[str, Labels, float]]) -> list[str]:
    lines = [f"# HELP sglang:{name} {text}", f"# TYPE sglang:{name} {kind}"]
    for sample, labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(labels[key])}"' for key in sorted(labels))
        lines.append(f"sglang:{sample}{{{inside}}} {float(value)!r}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
