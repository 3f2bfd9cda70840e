"""What an embedded engine says of itself: models, server info, loads. Metrics are in exposition.py."""

from datetime import UTC, datetime
from typing import Any

from proxy.lab.curve_units import cards
from proxy.lab.curves import Curve
from proxy.lab.engine import EngineBooks, EngineLimits
from proxy.lab.engine_options import EngineOptions

SECTIONS = ("core", "memory", "spec", "lora", "disagg", "queues", "all")
"""What `include` of `/v1/loads` may name."""


class Introspection:
    """The engine's own account, as decoded JSON."""

    def __init__(self, options: EngineOptions, curve: Curve, limits: EngineLimits) -> None:
        self.options = options
        self.curve = curve
        self.limits = limits
        self.model = options.model_name(curve)

    def models(self) -> dict[str, Any]:
        """`/v1/models`."""
        return {"object": "list", "data": [self.model_card()]}

    def model_card(self) -> dict[str, Any]:
        """One entry of `/v1/models`."""
        return {
            "id": self.model,
            "object": "model",
            "created": int(unix_now_s()),
            "owned_by": "sglang",
            "root": self.model,
            "parent": None,
            "max_model_len": self.options.context_length,
        }

    def model_info(self) -> dict[str, Any]:
        """`/model_info`."""
        return {
            "model_path": self.model,
            "served_model_name": self.model,
            "tokenizer_path": self.model,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
            "load_format": "dummy",
            "reasoning_parser": None,
            "tool_call_parser": None,
            "disaggregation_mode": "null",
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": "embedded",
            "architectures": ["CrossoverEmbedded"],
        }

    def server_info(self, books: EngineBooks, host: str, port: int) -> dict[str, Any]:
        """`/server_info`: the resolved flags that a reader may look at, and the state."""
        tensor_parallel = cards(self.curve.hardware) or 1
        return {
            **self._model_flags(),
            **self._speculative_flags(),
            "max_running_requests": self.limits.max_running_requests,
            "max_queued_requests": self.limits.max_queued_requests,
            "max_total_tokens": self.limits.kv_tokens,
            "chunked_prefill_size": self.limits.chunk_tokens,
            "schedule_policy": "fcfs",
            "enable_priority_scheduling": False,
            "page_size": 1,
            "disable_radix_cache": False,
            "tp_size": tensor_parallel,
            "dp_size": 1,
            "pp_size": 1,
            "host": host,
            "port": port,
            "api_key": None,
            "stream_interval": 1,
            "enable_metrics": True,
            "enable_cache_report": True,
            "load_snapshot_publish_interval": 1,
            "random_seed": self.options.seed,
            "launch_command": self._launch_command(),
            "status": "ready",
            "max_total_num_tokens": self.limits.kv_tokens,
            "max_req_input_len": self.options.context_length - 6,
            "internal_states": [self._internal_state(books)],
            "kv_events": None,
            "startup_time": 0.0,
            "version": self.options.version,
            "frontend": "python",
        }

    def loads(self, books: EngineBooks, include: frozenset[str]) -> dict[str, Any]:
        """`/v1/loads` with the sections of `include` (names of `SECTIONS`); core is always in."""
        every = not include or "all" in include
        load = self._core(books)
        if every or "memory" in include:
            gib = {"weight_gb": 0.0, "kv_cache_gb": 0.0, "graph_gb": 0.0}
            load["memory"] = {**gib, "token_capacity": self.limits.kv_tokens}
        if self.options.speculative and (every or "spec" in include):
            load["speculative"] = {
                "accept_length": books.accept_length,
                "accept_rate": self.accept_rate(books),
            }
        if every or "disagg" in include:
            load["disaggregation"] = {"mode": "null"}
        if every or "queues" in include:
            load["queues"] = {
                "waiting": books.waiting,
                "grammar": 0,
                "paused": 0,
                "retracted": 0,
                "prealloc_ready": 0,
            }
        return {
            "timestamp": datetime.now(UTC).isoformat(),
            "version": self.options.version,
            "accelerator": self.curve.hardware,
            "num_accelerators": cards(self.curve.hardware) or 1,
            "loads": [load],
        }

    def token_usage(self, books: EngineBooks) -> float:
        """Share of the KV pool in use."""
        return round(books.used_tokens / self.limits.kv_tokens, 4)

    def cache_hit_rate(self, books: EngineBooks) -> float:
        """Share of prompt tokens found in the prefix cache, since the start."""
        return books.cached_tokens / books.prompt_tokens if books.prompt_tokens else 0.0

    def accept_rate(self, books: EngineBooks) -> float:
        """Accepted drafts per proposed draft, since the start."""
        proposed = self.draft_tokens() - 1
        return max(0.0, books.accept_length - 1.0) / proposed if proposed > 0 else 0.0

    def _core(self, books: EngineBooks) -> dict[str, Any]:
        return {
            "timestamp": unix_now_s(),
            "dp_rank": 0,
            "num_running_reqs": books.running,
            "num_waiting_reqs": books.waiting,
            "num_waiting_uncached_tokens": books.waiting_uncached_tokens,
            "num_used_tokens": books.used_tokens,
            "num_total_tokens": books.used_tokens + books.waiting_uncached_tokens,
            "num_active_tokens": books.used_tokens,
            "num_prealloc_ready_tokens": 0,
            "max_total_num_tokens": self.limits.kv_tokens,
            "max_running_requests": self.limits.max_running_requests,
            "token_usage": self.token_usage(books),
            "gen_throughput": books.throughput,
            "cache_hit_rate": self.cache_hit_rate(books),
            "utilization": books.running / self.limits.max_running_requests,
            "total_prefill_uncached_tokens": books.prefill_tokens,
            "total_prefill_busy_us": books.prefill_busy_us,
            "decode_moments": list(books.moments) if books.moments[0] else None,
        }

    def _internal_state(self, books: EngineBooks) -> dict[str, Any]:
        state = {
            "last_gen_throughput": books.throughput,
            "effective_max_running_requests_per_dp": self.limits.max_running_requests,
            "memory_usage": {"token_capacity": self.limits.kv_tokens},
        }
        return {**state, "avg_spec_accept_length": books.accept_length} if self.options.speculative else state

    def _launch_command(self) -> str:
        adaptive = " --speculative-adaptive" if self.options.speculative_adaptive else ""
        return f"crossover engine --curve {self.curve.name} --role {self.options.role}{adaptive}"

    def _model_flags(self) -> dict[str, Any]:
        return {
            "model_path": self.model,
            "tokenizer_path": self.model,
            "served_model_name": self.model,
            "load_format": "dummy",
            "context_length": self.options.context_length,
            "weight_version": "default",
            "dtype": "bfloat16",
            "quantization": None,
            "kv_cache_dtype": "auto",
            "reasoning_parser": None,
            "tool_call_parser": None,
        }

    def _speculative_flags(self) -> dict[str, Any]:
        on, adaptive = self.options.speculative, self.options.speculative_adaptive
        return {
            "speculative_algorithm": self.curve.method if on else None,
            "speculative_num_steps": self.curve.num_steps if on else None,
            "speculative_eagle_topk": self._topk() if on else None,
            "speculative_num_draft_tokens": self.draft_tokens() if on else None,
            "speculative_adaptive": adaptive,
        }

    def _topk(self) -> int:
        # An engine adapts chains alone.
        return 1 if self.options.speculative_adaptive else self.curve.topk

    def draft_tokens(self) -> int:
        """Tokens that it verifies per sequence and step."""
        return self.curve.num_steps + 1 if self.options.speculative_adaptive else self.curve.draft_tokens


def unix_now_s() -> float:
    """The wall clock, unix seconds: only for instants that clients are shown, never for durations."""
    return datetime.now(UTC).timestamp()
