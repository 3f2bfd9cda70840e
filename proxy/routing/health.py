"""Whether a backend is healthy, from probe answers and from tokens that flow. Probing itself is not here (wire/).

Single misses flip nothing, since an engine's health page may be slow under load; only a backend that nobody has seen
alive goes down at its first miss, so that a start with a dead engine does not send it requests.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

# How often in a row an engine must say 503 of itself until it is believed. One may be a moment's overload; from 3 on a
# draining engine would get requests for another whole probe interval.
MAX_NOT_READY = 2


class Evidence(StrEnum):
    """One sign of a backend's health."""

    HIT = "hit"  # a probe was answered well
    MISS = "miss"  # a probe got no answer
    NOT_READY = "not_ready"  # the engine said 503 of itself
    TOKENS = "tokens"  # bytes of a generation came


@dataclass(frozen=True, slots=True)
class HealthRules:
    """Down after `max_misses` in a row, up again after `min_hits` in a row."""

    max_misses: int = 3
    min_hits: int = 2


@dataclass(frozen=True, slots=True)
class Health:
    """A backend's health: `up` is None until the first evidence; `since_s` (monotonic) is when `up` last changed.

    `misses`, `hits` and `not_ready` count in a row. While down, `not_ready` is 0 exactly when only missed probes speak
    against the backend; tokens then suffice to bring it up.
    """

    up: bool | None = None
    misses: int = 0
    hits: int = 0
    not_ready: int = 0
    since_s: float = float("-inf")


def advance(rules: HealthRules, health: Health, evidence: Evidence, now_s: float) -> Health:
    """The health after one more piece of evidence; the same object when nothing changes."""
    return _STEPS[evidence](rules, health, now_s)


def _hit(rules: HealthRules, health: Health, now_s: float) -> Health:
    if health.up:
        return _clean(health)
    hits = health.hits + 1
    if health.up is None or hits >= rules.min_hits:
        return Health(True, since_s=now_s)
    return replace(health, hits=hits, misses=0)


def _miss(rules: HealthRules, health: Health, now_s: float) -> Health:
    misses = health.misses + 1
    if health.up is None or (health.up and misses >= rules.max_misses):
        return Health(False, misses=misses, since_s=now_s)
    return replace(health, misses=misses, hits=0)


def _not_ready(_rules: HealthRules, health: Health, now_s: float) -> Health:
    """It is an answer, so it ends a row of misses; tokens do not end a row of these: a draining engine streams on."""
    not_ready = health.not_ready + 1
    if health.up is None or (health.up and not_ready >= MAX_NOT_READY):
        return Health(False, not_ready=not_ready, since_s=now_s)
    return replace(health, not_ready=not_ready, misses=0, hits=0)


def _tokens(_rules: HealthRules, health: Health, now_s: float) -> Health:
    if health.up:
        return replace(health, misses=0) if health.misses else health
    return health if health.not_ready else Health(True, since_s=now_s)


def _clean(health: Health) -> Health:
    return Health(True, since_s=health.since_s) if health.misses or health.not_ready else health


_STEPS: dict[Evidence, Callable[[HealthRules, Health, float], Health]] = {
    Evidence.HIT: _hit,
    Evidence.MISS: _miss,
    Evidence.NOT_READY: _not_ready,
    Evidence.TOKENS: _tokens,
}
