"""Reads what an engine says of itself: its load, its limits, its model. Never raises; None where it makes no sense.

Not here: asking (the wire), reading the Prometheus text (exposition.py) and comparing two engines (agreement.py). Both
are exported from here too.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import orjson

from proxy.model import EngineFacts, EngineLoad
from proxy.protocol.agreement import Disagreement, disagreements, ghosts
from proxy.protocol.exposition import parse_metrics

__all__ = [
    "Disagreement",
    "disagreements",
    "ghosts",
    "parse_loads",
    "parse_metrics",
    "parse_models",
    "parse_props",
    "parse_server_info",
    "parse_slots",
    "shows_keys",
]

MOMENTS = 6
"""Decode moments of SGLang: steps, sum b, sum t, sum b*b, sum b*t, sum of generated tokens."""

MAX_NUMBER = 1e18
"""Numbers above it are nonsense: more than all microseconds and tokens of a machine's life, and sums stay finite."""

MAX_NAME = 256
"""Characters that are read of a model's name or a version: they stand in the status, the journal and every log line."""

UNNAMED = "unnamed"
"""How an engine speculates that only tells that it does."""

_SECRET_ARGUMENTS = ("api_key", "admin_api_key", "ssl_keyfile_password")


def parse_loads(body: bytes) -> EngineLoad | None:
    """The load in SGLang's `/v1/loads`, summed over data-parallel ranks; `at_s` is that of the oldest rank.

    `max_running_requests` is the sum where every rank has one, `accept_length` the mean over the ranks that have one.
    """
    answer = _object(body)
    ranks = [rank for rank in _list(answer.get("loads")) if isinstance(rank, dict)]
    version = _text(answer.get("version"))
    if not ranks:
        return _parse_aggregate(answer, version)
    counted = [(_count(rank.get("num_running_reqs")), _count(rank.get("num_waiting_reqs"))) for rank in ranks]
    running = [run for run, _ in counted if run is not None]
    if not running:
        return None
    limits = [_count(rank.get("max_running_requests")) for rank in ranks]
    known = [limit for limit in limits if limit]
    rows = [row for rank in ranks if (row := _row(rank.get("decode_moments"))) is not None]
    accepted = [length for rank in ranks if (length := _number(_under(rank, "speculative", "accept_length")))]
    return EngineLoad(
        running=_sum(running),
        waiting=_sum(wait or 0 for _, wait in counted),
        at_s=_oldest(ranks, answer),
        max_running_requests=_sum(known) if len(known) == len(ranks) else None,
        accept_length=sum(accepted) / len(accepted) if accepted else None,
        moments=tuple(sum(column) for column in zip(*rows, strict=True)) if rows else None,
        version=version,
        ranks=len(rows) or len(ranks),
        kv_tokens=_kv_tokens(ranks),
    )


def parse_server_info(body: bytes) -> EngineFacts | None:
    """The facts in SGLang's `/server_info` (or, fewer, in `/model_info`); None where it is neither.

    The limit is the one in force, summed over data-parallel ranks, where the engine tells it; the launch argument
    may be unset while a default is at work.
    """
    answer = _object(body)
    model = _text(answer.get("served_model_name")) or _text(answer.get("model_path"))
    version = _text(answer.get("version"))
    if model is None and version is None:
        return None
    algorithm = _text(answer.get("speculative_algorithm"))
    return EngineFacts(
        model=model,
        version=version,
        context_length=_count(answer.get("context_length")) or _count(answer.get("max_req_input_len")),
        weight_version=_text(answer.get("weight_version")),
        max_running_requests=_effective_limit(answer) or _count(answer.get("max_running_requests")),
        speculative_algorithm=None if algorithm is None or algorithm.upper() == "NONE" else algorithm,
        speculative_adaptive=answer.get("speculative_adaptive") is True,
        kv_tokens=0 if answer.get("disable_radix_cache") is True else _count(answer.get("max_total_num_tokens")),
        started=_number(answer.get("startup_time")),
    )


def shows_keys(body: bytes) -> bool:
    """Whether an engine's answer about itself shows a key: `/server_info` lists all launch arguments."""
    answer = _object(body)
    return any(answer.get(name) for name in _SECRET_ARGUMENTS)


def parse_models(body: bytes) -> EngineFacts | None:
    """The facts in an OpenAI model list (`/v1/models`), of its first model: name and context length."""
    for card in _list(_object(body).get("data")):
        if isinstance(card, dict) and (model := _text(card.get("id"))):
            return EngineFacts(model=model, context_length=_count(card.get("max_model_len")))
    return None


def parse_props(props: bytes, slots: bytes) -> EngineFacts | None:
    """The facts in llama.cpp's `/props`, and in `/slots` (b"" where it is off) whether it drafts; None where the first
    is not llama.cpp's. The context is that of one slot, the limit the number of slots; without `/slots` no version is
    told, since nobody knows then whether it drafts."""
    answer = _object(props)
    limit = _count(answer.get("total_slots"))
    if limit is None:
        return None
    seen = _slots(slots)
    drafts = any(slot.get("speculative") is True for slot in seen)
    return EngineFacts(
        model=_text(answer.get("model_alias")) or _text(answer.get("model_path")),
        version=_text(answer.get("build_info")) if seen else None,
        context_length=_count(_under(answer, "default_generation_settings", "n_ctx")),
        max_running_requests=limit or None,
        speculative_algorithm=UNNAMED if drafts else None,
        notices_leaving=False,
    )


def parse_slots(body: bytes) -> EngineLoad | None:
    """The load in llama.cpp's `/slots`: what runs; what waits it does not tell."""
    slots = _slots(body)
    if not slots:
        return None
    running = sum(slot.get("is_processing") is True for slot in slots)
    return EngineLoad(running=running, waiting=0, max_running_requests=len(slots))


def _slots(body: bytes) -> list[dict[str, Any]]:
    try:
        value = orjson.loads(body)
    except ValueError:
        return []
    return [slot for slot in _list(value) if isinstance(slot, dict)]


def _parse_aggregate(answer: dict[str, Any], version: str | None) -> EngineLoad | None:
    """The form of 0.5.10 and its like: one object over all ranks, here used where no rank is listed."""
    running = _count(_under(answer, "aggregate", "total_running_reqs"))
    if running is None:
        return None
    waiting = _count(_under(answer, "aggregate", "total_waiting_reqs"))
    return EngineLoad(running=running, waiting=waiting or 0, at_s=_oldest([], answer), version=version)


def _effective_limit(answer: dict[str, Any]) -> int | None:
    states = [state for state in _list(answer.get("internal_states")) if isinstance(state, dict)]
    limits = [_count(state.get("effective_max_running_requests_per_dp")) for state in states]
    known = [limit for limit in limits if limit]
    return _sum(known) if known and len(known) == len(limits) else None


def _kv_tokens(ranks: list[dict[str, Any]]) -> int | None:
    """Tokens that the caches of all ranks hold, where every rank tells."""
    told = [_count(rank.get("max_total_num_tokens")) for rank in ranks]
    known = [tokens for tokens in told if tokens]
    return _sum(known) if len(known) == len(told) else None


def _row(value: object) -> list[float] | None:
    numbers = [number for one in _list(value) if (number := _number(one)) is not None]
    return numbers if len(numbers) == MOMENTS == len(_list(value)) else None


def _oldest(ranks: list[dict[str, Any]], answer: dict[str, Any]) -> float | None:
    """Unix seconds of the oldest rank's snapshot, else of the answer."""
    stamps = [stamp for rank in ranks if (stamp := _number(rank.get("timestamp")))]
    return min(stamps) if stamps else _instant(answer.get("timestamp"))


def _instant(value: object) -> float | None:
    """Unix seconds of an ISO 8601 text with its offset."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
        return None if at is None or at.tzinfo is None else _number(at.timestamp())
    except (ValueError, OverflowError):
        return None


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _under(value: dict[str, Any], name: str, field: str) -> object:
    inner = value.get(name)
    return inner.get(field) if isinstance(inner, dict) else None


def _number(value: object) -> float | None:
    """A number from 0 to MAX_NUMBER."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER:
        return float(value)
    return None


def _sum(counts: Iterable[int]) -> int:
    """A sum that is no more than one number may be: JSON has no more than 64 bits for it."""
    return min(sum(counts), int(MAX_NUMBER))


def _count(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _text(value: object) -> str | None:
    return value[:MAX_NAME] if isinstance(value, str) and value else None
