"""The allow-list of the client port as data: which paths each engine serves, and which of them are the operator's.

Not here: the lookup of a request target (routes.py) and the health paths, which are the proxy's own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from proxy.model import Dialect


class EngineKind(StrEnum):
    """Which server stands behind the proxy; `openai` is any that speaks OpenAI's API and of which no more is known."""

    SGLANG = "sglang"
    VLLM = "vllm"
    LLAMACPP = "llamacpp"
    OPENAI = "openai"


class RouteClass(StrEnum):
    """What a request on a route costs the engine."""

    DECODE = "decode"  # occupies sequences for as long as it generates
    PREFILL = "prefill"  # one forward pass a sequence, nothing generated
    AUDIO = "audio"  # transcription: an encoder pass and a decode
    CPU = "cpu"  # tokenisers and parsers, no GPU
    INFO = "info"  # what is served


STATEFUL_PREFIX = "/v1/responses/"
"""What is under it lives in the memory of the one engine that made the id."""

STORED_RESPONSES = STATEFUL_PREFIX + "{response:path}"
"""To read a stored response, and to cancel it."""

_LEASED = frozenset({RouteClass.DECODE, RouteClass.PREFILL, RouteClass.AUDIO})


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the allow-list.

    `template` is the path, or a path with one `{name:path}` at its end; it is safe as a metric label. `methods` are
    upper case and hold HEAD wherever GET is. `dialect` is the wire form of the answer and of errors. `counts` says
    that a request on this route takes a lease.
    """

    template: str
    methods: frozenset[str]
    kind: RouteClass
    dialect: Dialect
    counts: bool


def _rows(kind: RouteClass, dialect: Dialect, methods: str, *templates: str) -> Iterator[Route]:
    """Rows that differ only in their template; `methods` is a space separated list."""
    allowed = frozenset(methods.split()) | ({"HEAD"} if "GET" in methods else set())
    for template in templates:
        yield Route(template, allowed, kind, dialect, kind in _LEASED)


def _paths(text: str) -> frozenset[str]:
    """Paths written as words."""
    return frozenset(text.split())


_SGLANG_ROUTES = (
    *_rows(RouteClass.DECODE, Dialect.CHAT, "POST", "/v1/chat/completions", "/invocations"),
    *_rows(RouteClass.DECODE, Dialect.COMPLETIONS, "POST", "/v1/completions"),
    *_rows(RouteClass.DECODE, Dialect.RESPONSES, "POST", "/v1/responses"),
    *_rows(RouteClass.DECODE, Dialect.MESSAGES, "POST", "/v1/messages"),
    *_rows(RouteClass.DECODE, Dialect.GENERATE, "POST PUT", "/generate"),
    *_rows(RouteClass.DECODE, Dialect.PLAIN, "POST", "/vertex_generate"),
    *_rows(RouteClass.DECODE, Dialect.OLLAMA, "POST", "/api/chat", "/api/generate"),
    *_rows(RouteClass.PREFILL, Dialect.PLAIN, "POST", "/v1/embeddings", "/v1/classify", "/v1/score"),
    *_rows(RouteClass.PREFILL, Dialect.PLAIN, "POST", "/v1/decisions", "/v1/systemone"),
    *_rows(RouteClass.PREFILL, Dialect.PLAIN, "POST PUT", "/classify", "/encode", "/v1/rerank"),
    # Transcription may stream, and has no end that all versions agree on: its bytes pass and no end is demanded.
    *_rows(RouteClass.AUDIO, Dialect.PLAIN, "POST", "/v1/audio/transcriptions"),
    *_rows(RouteClass.CPU, Dialect.MESSAGES, "POST", "/v1/messages/count_tokens"),
    *_rows(RouteClass.CPU, Dialect.PLAIN, "POST", "/v1/tokenize", "/tokenize", "/v1/detokenize", "/detokenize"),
    *_rows(RouteClass.CPU, Dialect.PLAIN, "POST", "/parse_function_call", "/separate_reasoning"),
    *_rows(RouteClass.INFO, Dialect.PLAIN, "GET", "/", "/v1/models", "/v1/models/{model:path}", "/v1/loads"),
    *_rows(RouteClass.INFO, Dialect.PLAIN, "GET", "/model_info", "/get_model_info", "/server_info", "/get_server_info"),
    *_rows(RouteClass.INFO, Dialect.PLAIN, "GET", "/metrics", "/metrics/{rest:path}"),
    *_rows(RouteClass.INFO, Dialect.PLAIN, "GET", "/openapi.json", "/docs", "/redoc"),
    *_rows(RouteClass.INFO, Dialect.RESPONSES, "GET POST", STORED_RESPONSES),
    *_rows(RouteClass.INFO, Dialect.OLLAMA, "GET", "/api/tags"),
    *_rows(RouteClass.INFO, Dialect.OLLAMA, "POST", "/api/show"),
)

_VLLM_ROUTES = (
    *_rows(RouteClass.DECODE, Dialect.CHAT, "POST", "/v1/chat/completions", "/invocations"),
    # Several conversations in one body answer as one JSON document and do not stream.
    *_rows(RouteClass.DECODE, Dialect.PLAIN, "POST", "/v1/chat/completions/batch"),
    # Tokens in, tokens out: streams choices and ends with [DONE] like completions.
    *_rows(RouteClass.DECODE, Dialect.COMPLETIONS, "POST", "/v1/completions", "/inference/v1/generate"),
    *_rows(RouteClass.DECODE, Dialect.RESPONSES, "POST", "/v1/responses"),
    *_rows(RouteClass.DECODE, Dialect.MESSAGES, "POST", "/v1/messages"),
    *_rows(RouteClass.DECODE, Dialect.PLAIN, "POST", "/cohere/v2/chat", "/generative_scoring"),
    *_rows(RouteClass.DECODE, Dialect.PLAIN, "POST", "/v1/decisions", "/v1/systemone"),
    *_rows(RouteClass.PREFILL, Dialect.PLAIN, "POST", "/v1/embeddings", "/v2/embed", "/pooling", "/classify"),
    *_rows(RouteClass.PREFILL, Dialect.PLAIN, "POST", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank"),
    *_rows(RouteClass.AUDIO, Dialect.PLAIN, "POST", "/v1/audio/transcriptions", "/v1/audio/translations"),
    *_rows(RouteClass.CPU, Dialect.MESSAGES, "POST", "/v1/messages/count_tokens"),
    *_rows(RouteClass.CPU, Dialect.PLAIN, "POST", "/tokenize", "/detokenize"),
    *_rows(RouteClass.CPU, Dialect.PLAIN, "POST", "/v1/chat/completions/render", "/v1/completions/render"),
    *_rows(RouteClass.CPU, Dialect.PLAIN, "POST", "/v1/chat/completions/derender", "/v1/completions/derender"),
    *_rows(
        RouteClass.INFO, Dialect.PLAIN, "GET", "/v1/models", "/version", "/load", "/metrics", "/metrics/{rest:path}"
    ),
    *_rows(RouteClass.INFO, Dialect.RESPONSES, "GET POST", STORED_RESPONSES),
)

_LLAMACPP_ROUTES = (
    *_rows(RouteClass.DECODE, Dialect.CHAT, "POST", "/v1/chat/completions", "/chat/completions"),
    *_rows(RouteClass.DECODE, Dialect.COMPLETIONS, "POST", "/v1/completions"),
    *_rows(RouteClass.DECODE, Dialect.RESPONSES, "POST", "/v1/responses", "/responses"),
    *_rows(RouteClass.DECODE, Dialect.MESSAGES, "POST", "/v1/messages"),
    # The native routes stream `data:` lines that end with the connection's chunk and no mark of their own.
    *_rows(RouteClass.DECODE, Dialect.PLAIN, "POST", "/completion", "/completions", "/infill"),
    *_rows(RouteClass.PREFILL, Dialect.PLAIN, "POST", "/v1/embeddings", "/embeddings", "/embedding"),
    *_rows(RouteClass.PREFILL, Dialect.PLAIN, "POST", "/v1/rerank", "/v1/reranking", "/rerank", "/reranking"),
    *_rows(RouteClass.PREFILL, Dialect.PLAIN, "POST", "/v1/systemone"),
    *_rows(RouteClass.AUDIO, Dialect.PLAIN, "POST", "/v1/audio/transcriptions", "/audio/transcriptions"),
    *_rows(RouteClass.CPU, Dialect.MESSAGES, "POST", "/v1/messages/count_tokens"),
    *_rows(RouteClass.CPU, Dialect.PLAIN, "POST", "/v1/chat/completions/input_tokens", "/v1/responses/input_tokens"),
    *_rows(RouteClass.CPU, Dialect.PLAIN, "POST", "/chat/completions/input_tokens", "/responses/input_tokens"),
    *_rows(RouteClass.CPU, Dialect.PLAIN, "POST", "/tokenize", "/detokenize", "/apply-template"),
    # With POST the same path changes settings for everybody, so it is open for reading alone.
    *_rows(RouteClass.INFO, Dialect.PLAIN, "GET", "/props"),
    *_rows(RouteClass.INFO, Dialect.PLAIN, "GET", "/v1/models", "/models", "/metrics"),
)

# What OpenAI's own API has and servers that copy it commonly do, and Anthropic's messages, which many have too. A path
# that the server does not know it answers itself.
_OPENAI_ROUTES = (
    *_rows(RouteClass.DECODE, Dialect.CHAT, "POST", "/v1/chat/completions"),
    *_rows(RouteClass.DECODE, Dialect.COMPLETIONS, "POST", "/v1/completions"),
    *_rows(RouteClass.DECODE, Dialect.RESPONSES, "POST", "/v1/responses"),
    *_rows(RouteClass.DECODE, Dialect.MESSAGES, "POST", "/v1/messages"),
    *_rows(RouteClass.PREFILL, Dialect.PLAIN, "POST", "/v1/embeddings"),
    *_rows(RouteClass.AUDIO, Dialect.PLAIN, "POST", "/v1/audio/transcriptions", "/v1/audio/translations"),
    *_rows(RouteClass.CPU, Dialect.MESSAGES, "POST", "/v1/messages/count_tokens"),
    *_rows(RouteClass.INFO, Dialect.PLAIN, "GET", "/v1/models", "/v1/models/{model:path}"),
)

ROUTES: dict[EngineKind, tuple[Route, ...]] = {
    EngineKind.SGLANG: _SGLANG_ROUTES,
    EngineKind.VLLM: _VLLM_ROUTES,
    EngineKind.LLAMACPP: _LLAMACPP_ROUTES,
    EngineKind.OPENAI: _OPENAI_ROUTES,
}
"""Every route that is forwarded, by engine."""

REFUSED: dict[EngineKind, frozenset[str]] = {
    EngineKind.SGLANG: _paths(
        """
        /flush_cache /abort_request /pause_generation /continue_generation /set_internal_state
        /start_profile /stop_profile /set_trace_level /freeze_gc /configure_logging /slow_down
        /start_expert_distribution_record /stop_expert_distribution_record /dump_expert_distribution_record
        /begin_weight_update /end_weight_update /update_weight_version /get_weights_by_name /weights_checker
        /init_weights_update_group /destroy_weights_update_group
        /init_weights_send_group_for_remote_instance /send_weights_to_remote_instance
        /get_remote_instance_transfer_engine_info /remote_instance_transfer_engine_info
        /release_memory_occupation /resume_memory_occupation
        /load_lora_adapter /load_lora_adapter_from_tensors /unload_lora_adapter /get_hicache_l3_cache_layout
        /add_external_corpus /remove_external_corpus /list_external_corpora
        /pd_role_switch /scale_elastic_ep /is_scaling_elastic_ep /open_session /close_session
        """
    ),
    EngineKind.VLLM: _paths(
        """
        /v1/load_lora_adapter /v1/unload_lora_adapter /start_profile /stop_profile
        /scale_elastic_ep /is_scaling_elastic_ep /server_info /collective_rpc /abort_requests
        /reset_prefix_cache /reset_mm_cache /reset_encoder_cache /sleep /wake_up /is_sleeping
        /pause /resume /is_paused /init_weight_transfer_engine /update_weights /get_world_size
        """
    ),
    # `/slots` tells everybody's requests; a stream by its conversation lives in the one instance that made it.
    EngineKind.LLAMACPP: _paths(
        """
        /slots /lora-adapters /v1/chat/completions/control /v1/stream /v1/streams/lookup
        /models/load /models/unload /tools /cors-proxy
        """
    ),
    EngineKind.OPENAI: frozenset(),
}
"""Paths that exist on the engine and act on it for everybody: never reachable from the client port."""

REFUSED_PREFIXES: dict[EngineKind, tuple[str, ...]] = {
    EngineKind.SGLANG: ("/update_weights_from_", "/hicache/", "/dumper/"),
    EngineKind.VLLM: ("/update_weights_from_",),
    EngineKind.LLAMACPP: ("/slots/", "/v1/stream/"),
    EngineKind.OPENAI: (),
}
"""The same, for families of paths."""

UPGRADE_PATHS = frozenset({"/v1/realtime"})
"""Paths that speak WebSocket only."""

LIVENESS_PATHS = frozenset({"/health/live", "/live", "/livez", "/healthz"})
"""Answered by the proxy: it runs."""

READINESS_PATHS = frozenset({"/health", "/ready", "/readyz", "/health/ready", "/ping", "/health_generate"})
"""Answered by the proxy: it can serve."""
