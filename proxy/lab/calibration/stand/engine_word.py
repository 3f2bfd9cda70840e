"""What one engine says of its own load while it is measured: asked over HTTP, read leniently, never raised.

What is made of it is in counting.py; what the engine runs (model, flags, limits) is in arm_facts.py.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
import orjson

from proxy.errors import UpstreamError
from proxy.lab.bodies import whole
from proxy.lab.calibration.stand import series
from proxy.protocol.allowlist import EngineKind
from proxy.protocol.engines import parse_loads, parse_metrics

# Answers come out of memory; an engine that takes longer is asked again at the next look.
_WITHIN_S = 5.0

# What is asked here has some KiB, megabytes on an engine with thousands of series; the proxy's own polls read as much.
MAX_PAGE_BYTES = 8 * 1024 * 1024

# What a Crossover proxy says with each answer of an engine.
_PROXYS_HEADER = "x-crossover-backend"

_LOADS_PATH = "/v1/loads?include=core,spec"

_NAMES = frozenset(
    (
        "vllm:generation_tokens_total",
        "vllm:spec_decode_num_drafts_total",
        "vllm:spec_decode_num_accepted_tokens_total",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:kv_cache_usage_perc",
        "sglang:generation_tokens_total",
        "sglang:realtime_tokens_total",
        "sglang:spec_accept_length",
        "sglang:token_usage",
        "llamacpp:tokens_predicted_total",
        "llamacpp:spec_decode_num_drafts_total",
        "llamacpp:spec_decode_num_accepted_tokens_total",
        "llamacpp:prompt_tokens_total",
        "llamacpp:prompt_tokens_cached_total",
    )
)


@dataclass(frozen=True, slots=True)
class ArmTarget:
    """Where one arm is: base address without a path, engine, key, and the model's name (None: the first it lists)."""

    url: str
    engine: EngineKind
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None


class Counters(NamedTuple):
    """Totals since the engine's start, in tokens; None where it does not count them.

    `generated` counts each token as it comes, `finished` only when its request ends. `looked_up` and `found` are
    prompt tokens that the prefix cache was asked for and had.
    """

    generated: float | None = None
    finished: float | None = None
    drafts: float | None = None
    accepted: float | None = None
    looked_up: float | None = None
    found: float | None = None


class Reading(NamedTuple):
    """One look at an engine. `moments` are cumulative decode moments over `ranks` data-parallel ranks; shares are 0..1.

    `accept_length` and `cache_hit_rate` are as the engine tells them, over whatever time it likes.
    """

    running: int
    waiting: int
    limit: int | None = None
    moments: tuple[float, ...] | None = None
    ranks: int = 1
    accept_length: float | None = None
    kv_use: float | None = None
    cache_hit_rate: float | None = None

    @property
    def sequences(self) -> int:
        """All that it has, running or waiting."""
        return self.running + self.waiting

    @property
    def at_limit(self) -> bool:
        """Whether it runs as many as it may."""
        return self.limit is not None and self.running >= self.limit


class EngineWord:
    """Asks one engine. Everything it gives may be None: engines differ, and a busy one may be late."""

    def __init__(self, session: aiohttp.ClientSession, target: ArmTarget) -> None:
        self._session = session
        self._target = target
        self._headers = {"authorization": f"Bearer {target.api_key}"} if target.api_key else {}
        self._has_loads = target.engine is EngineKind.SGLANG
        self._has_metrics = True

    async def page(self, path: str) -> tuple[int, bytes]:
        """The status and body at a path. Awaits at most some seconds. Raises OSError, TimeoutError or ClientError
        (OversizeBody among them), and UpstreamError where a Crossover proxy answers, behind which two engines would be
        measured as one."""
        async with (
            asyncio.timeout(_WITHIN_S),
            self._session.get(f"{self._target.url}{path}", headers=self._headers, allow_redirects=False) as response,
        ):
            if _PROXYS_HEADER in response.headers:
                raise UpstreamError(
                    f"{self._target.url} is a Crossover proxy and not an engine; mend: name the engine's own address"
                )
            return response.status, await whole(response.content, MAX_PAGE_BYTES)

    async def read(self) -> Reading | None:
        """Its load now; None where it tells none. Awaits; never raises."""
        if self._has_loads:
            status, body = await self._ask(_LOADS_PATH)
            if status == 200:
                return reading_of_loads(body)
            # Only a plain "no such page" settles it: a busy engine may have the page and no time.
            self._has_loads = status not in (404, 405)
            if self._has_loads:
                return None
        text = await self._metrics()
        return None if text is None else reading_of_metrics(text)

    async def counters(self) -> Counters:
        """Its totals now. Awaits; never raises."""
        text = await self._metrics()
        return Counters() if text is None else counters_of(text)

    async def _metrics(self) -> str | None:
        if not self._has_metrics:
            return None
        status, body = await self._ask("/metrics")
        self._has_metrics = status not in (404, 405)
        return body.decode("utf-8", "replace") if status == 200 else None

    async def _ask(self, path: str) -> tuple[int, bytes]:
        try:
            return await self.page(path)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0, b""


def reading_of_loads(body: bytes) -> Reading | None:
    """A reading out of SGLang's `/v1/loads`; shares are the mean over ranks."""
    load = parse_loads(body)
    if load is None:
        return None
    ranks = _ranks(body)
    return Reading(
        running=load.running,
        waiting=load.waiting,
        limit=load.max_running_requests,
        moments=load.moments,
        ranks=load.ranks,
        accept_length=load.accept_length,
        kv_use=_mean(ranks, "token_usage"),
        cache_hit_rate=_mean(ranks, "cache_hit_rate"),
    )


def reading_of_metrics(text: str) -> Reading | None:
    """A reading out of an engine's Prometheus text."""
    load = parse_metrics(text)
    if load is None:
        return None
    found = series.read(text, _NAMES)
    kv_use = series.mean(found, "vllm:kv_cache_usage_perc")
    return Reading(
        running=load.running,
        waiting=load.waiting,
        accept_length=series.mean(found, "sglang:spec_accept_length") or None,
        kv_use=series.mean(found, "sglang:token_usage") if kv_use is None else kv_use,
    )


def counters_of(text: str) -> Counters:
    """The totals in an engine's Prometheus text."""
    found = series.read(text, _NAMES)
    if "vllm:generation_tokens_total" in found:
        return Counters(
            generated=series.total(found, "vllm:generation_tokens_total"),
            drafts=series.total(found, "vllm:spec_decode_num_drafts_total"),
            accepted=series.total(found, "vllm:spec_decode_num_accepted_tokens_total"),
            looked_up=series.total(found, "vllm:prefix_cache_queries_total"),
            found=series.total(found, "vllm:prefix_cache_hits_total"),
        )
    if "llamacpp:tokens_predicted_total" in found:
        read, cached = (series.total(found, f"llamacpp:prompt_tokens_{name}total") for name in ("", "cached_"))
        return Counters(
            finished=series.total(found, "llamacpp:tokens_predicted_total"),
            drafts=series.total(found, "llamacpp:spec_decode_num_drafts_total"),
            accepted=series.total(found, "llamacpp:spec_decode_num_accepted_tokens_total"),
            looked_up=None if read is None else read + (cached or 0.0),
            found=cached,
        )
    computed = series.total(found, "sglang:realtime_tokens_total", mode="prefill_compute")
    cached = series.total(found, "sglang:realtime_tokens_total", mode="prefill_cache")
    return Counters(
        generated=series.total(found, "sglang:realtime_tokens_total", mode="decode"),
        finished=series.total(found, "sglang:generation_tokens_total"),
        looked_up=None if computed is None else computed + (cached or 0.0),
        found=None if computed is None else cached or 0.0,
    )


def _ranks(body: bytes) -> list[dict[str, Any]]:
    answer = orjson.loads(body)  # parse_loads has read it already.
    loads = answer.get("loads") if isinstance(answer, dict) else None
    return [rank for rank in loads if isinstance(rank, dict)] if isinstance(loads, list) else []


def _mean(ranks: list[dict[str, Any]], name: str) -> float | None:
    told = [float(rank[name]) for rank in ranks if isinstance(rank.get(name), int | float)]
    return sum(told) / len(told) if told else None
