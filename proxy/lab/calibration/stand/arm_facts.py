"""What one arm runs, asked once before the first cell: model, version, limits, drafting, hardware. Never a key.

Only the launch arguments named here are passed on; an engine's account of itself holds its keys and paths too.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import aiohttp
import orjson

from proxy.errors import BackendUnreachable, UpstreamError
from proxy.lab.calibration.stand import series
from proxy.lab.calibration.stand.arm import ArmDesk
from proxy.lab.calibration.values import ArmFacts
from proxy.protocol.allowlist import EngineKind
from proxy.protocol.engines import UNNAMED, parse_loads, parse_models, parse_props, parse_server_info

# Launch arguments that bear on speed, by SGLang's names.
_FLAGS = (
    *("tp_size", "dp_size", "pp_size", "ep_size", "enable_dp_attention"),
    *("dtype", "quantization", "kv_cache_dtype", "page_size", "context_length", "mem_fraction_static"),
    *("attention_backend", "prefill_attention_backend", "decode_attention_backend", "moe_runner_backend"),
    *("max_running_requests", "max_total_tokens", "max_queued_requests", "chunked_prefill_size", "max_prefill_tokens"),
    *("cuda_graph_max_bs", "disable_cuda_graph", "disable_overlap_schedule", "enable_mixed_chunk", "schedule_policy"),
    *("disable_radix_cache", "enable_metrics", "enable_cache_report", "load_snapshot_publish_interval"),
    *("speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"),
    *("speculative_adaptive", "speculative_attention_mode", "speculative_token_map"),
)

# What vLLM tells of its cache as labels of one series.
_VLLM_FLAGS = ("block_size", "num_gpu_blocks", "cache_dtype", "gpu_memory_utilization", "enable_prefix_caching")
_CACHE_CONFIG = "vllm:cache_config_info"
_DRAFTS = "vllm:spec_decode_num_drafts_total"
_BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"

# Names, versions and flags are a line; what is longer than this is no name, and would be said in many places.
_MAX_WORDS = 200


class _Page(NamedTuple):
    status: int
    body: bytes

    @property
    def fields(self) -> Mapping[str, Any]:
        try:
            value = orjson.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


async def facts_of(desk: ArmDesk) -> ArmFacts:
    """Ask the arm's engine and have `desk` ask for its model. Awaits.

    Raises BackendUnreachable where nothing answers, and UpstreamError where it wants a key or names no model; both tell
    the mend.
    """
    listed = await _page(desk, "/v1/models")
    if listed.status in (401, 403):
        raise UpstreamError(
            f"the {desk.arm} engine at {desk.target.url} wants a key ({listed.status}): set `api_key_file` (or"
            " `api_key`) at its backend"
        )
    card = parse_models(listed.body) if listed.status == 200 else None
    model = desk.target.model or (card.model if card is not None else None)
    if model is None:
        raise UpstreamError(
            f"{desk.target.url}/v1/models answered {listed.status} and names no model: is the {desk.arm} engine an"
            " OpenAI-compatible one, and is the address without a path? Else name its model"
        )
    desk.name_model(model)
    ask = {EngineKind.SGLANG: _of_sglang, EngineKind.LLAMACPP: _of_llamacpp}.get(desk.engine, _of_vllm)
    return _readable(await ask(desk, model))


def _readable(facts: ArmFacts) -> ArmFacts:
    """The facts as they may stand on a terminal and in a report: an engine's words steer neither."""
    return replace(
        facts,
        model=_words(facts.model),
        version=_words(facts.version),
        speculative_algorithm=_words(facts.speculative_algorithm),
        accelerator=_words(facts.accelerator),
        flags={name: _words(value) or "" for name, value in facts.flags.items()},
    )


def _words(text: str | None) -> str | None:
    return None if text is None else "".join(one if one.isprintable() else "?" for one in text[:_MAX_WORDS])


async def _of_sglang(desk: ArmDesk, model: str) -> ArmFacts:
    about, loads = await _page(desk, "/server_info"), await _page(desk, "/v1/loads")
    if about.status == 404:
        about = await _page(desk, "/get_server_info")
    facts, load = parse_server_info(about.body), parse_loads(loads.body)
    said, told = about.fields, loads.fields
    limit = load.max_running_requests if load is not None else None
    return ArmFacts(
        arm=desk.arm,
        url=desk.target.url,
        engine=desk.engine.value,
        model=model,
        version=(facts.version if facts is not None else None) or (load.version if load is not None else None),
        max_running_requests=limit or (facts.max_running_requests if facts is not None else None),
        kv_tokens=_kv_tokens(told) or _whole(said.get("max_total_num_tokens")),
        speculative_algorithm=facts.speculative_algorithm if facts is not None else None,
        num_steps=_whole(said.get("speculative_num_steps")),
        topk=_whole(said.get("speculative_eagle_topk")),
        draft_tokens=_whole(said.get("speculative_num_draft_tokens")),
        adaptive=facts is not None and facts.speculative_adaptive,
        accelerator=_text(told.get("accelerator")),
        accelerators=_whole(told.get("num_accelerators")),
        flags={name: _shown(said[name]) for name in _FLAGS if _is_plain(said.get(name))},
    )


async def _of_vllm(desk: ArmDesk, model: str) -> ArmFacts:
    version = (await _page(desk, "/version")).fields.get("version")
    page = await _page(desk, "/metrics")
    text = page.body.decode("utf-8", "replace") if page.status == 200 else ""
    found = series.read(text, frozenset((_CACHE_CONFIG, _DRAFTS, _BY_POSITION)))
    labels = {name: series.label(found, _CACHE_CONFIG, name) for name in _VLLM_FLAGS}
    blocks, size = (_number(labels[name]) for name in ("num_gpu_blocks", "block_size"))
    positions = {known.get("position") for known, _ in found.get(_BY_POSITION, ())}
    return ArmFacts(
        arm=desk.arm,
        url=desk.target.url,
        engine=desk.engine.value,
        model=model,
        version=_text(version),
        kv_tokens=blocks * size if blocks and size else None,
        speculative_algorithm=UNNAMED if _DRAFTS in found else None,
        num_steps=len(positions) or None,
        draft_tokens=len(positions) + 1 if positions else None,
        flags={name: value for name, value in labels.items() if value is not None},
    )


async def _of_llamacpp(desk: ArmDesk, model: str) -> ArmFacts:
    about, slots = await _page(desk, "/props"), await _page(desk, "/slots")
    facts = parse_props(about.body, slots.body if slots.status == 200 else b"")
    context = None if facts is None else facts.context_length
    return ArmFacts(
        arm=desk.arm,
        url=desk.target.url,
        engine=desk.engine.value,
        model=model,
        version=None if facts is None else facts.version,
        max_running_requests=None if facts is None else facts.max_running_requests,
        speculative_algorithm=None if facts is None else facts.speculative_algorithm,
        flags={} if context is None else {"slot_context": str(context)},
    )


async def _page(desk: ArmDesk, path: str) -> _Page:
    try:
        return _Page(*await desk.word.page(path))
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise BackendUnreachable(
            f"no answer from the {desk.arm} engine at {desk.target.url} ({type(error).__name__}): start it, or mend its"
            " address in the configuration"
        ) from error


def _kv_tokens(told: Mapping[str, Any]) -> int | None:
    """The pool over all ranks; None where any does not tell."""
    loads = told.get("loads")
    ranks = [_whole(rank.get("max_total_num_tokens")) for rank in loads or () if isinstance(rank, dict)]
    known = [rank for rank in ranks if rank]
    return sum(known) if known and len(known) == len(ranks) else None


def _is_plain(value: object) -> bool:
    return isinstance(value, bool | int | float | str) and value != ""


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 19 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
