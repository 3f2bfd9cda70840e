"""Whether a backend is healthy, from probe answers and from tokens that flow. Probing itself is not here (wire/).

Single misses flip nothing, since an engine's health page may be slow under load; only a backend that nobody has seen
alive goes down at its first miss, so that a start with a dead engine does not send it requests. A generation without a
first byte makes a backend doubtful: its cheap page counts for nothing then, and one failed look takes it down.
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
    REFUSED = "refused"  # a probe found nobody there: the connection was refused, or the name is unknown
    NOT_READY = "not_ready"  # the engine said 503 of itself
    TOKENS = "tokens"  # bytes of a generation came
    SILENCE = "silence"  # a generation waited for its first byte in vain


@dataclass(frozen=True, slots=True)
class HealthRules:
    """Down after `max_misses` in a row, up again after `min_hits` in a row."""

    max_misses: int = 3
    min_hits: int = 2

    @property
    def refused_weighs(self) -> int:
        """Misses that a refused probe counts as: no load explains it, so two of them are enough."""
        return (self.max_misses + 1) // 2


@dataclass(frozen=True, slots=True)
class Health:
    """A backend's health: `up` is None until the first evidence; `since_s` (monotonic) is when `up` last changed.

    `misses`, `hits` and `not_ready` count in a row. While down, `not_ready` is 0 exactly when only missed probes speak
    against the backend; tokens then suffice to bring it up. `doubtful` is set from a generation's silence until tokens
    or a hit: whoever probes must then count no page as a hit that answers without generating.
    """

    up: bool | None = None
    misses: int = 0
    hits: int = 0
    not_ready: int = 0
    since_s: float = float("-inf")
    doubtful: bool = False


def advance(rules: HealthRules, health: Health, evidence: Evidence, now_s: float) -> Health:
    """The health after one more piece of evidence; the same object when nothing changes."""
    return _STEPS[evidence](rules, health, now_s)


def _hit(rules: HealthRules, health: Health, now_s: float) -> Health:
    if health.up:
        return _clean(health)
    hits = health.hits + 1
    if health.up is None or hits >= rules.min_hits:
        return Health(True, since_s=now_s)
    return replace(health, hits=hits, misses=0, doubtful=False)


def _miss(rules: HealthRules, health: Health, now_s: float, weight: int = 1) -> Health:
    misses = health.misses + weight
    if health.up is None or (health.up and (health.doubtful or misses >= rules.max_misses)):
        return replace(health, up=False, misses=misses, hits=0, not_ready=0, since_s=now_s)
    return replace(health, misses=misses, hits=0)


def _refused(rules: HealthRules, health: Health, now_s: float) -> Health:
    return _miss(rules, health, now_s, rules.refused_weighs)


def _not_ready(_rules: HealthRules, health: Health, now_s: float) -> Health:
    """It is an answer, so it ends a row of misses; tokens do not end a row of these: a draining engine streams on."""
    not_ready = health.not_ready + 1
    if health.up is None or (health.up and (health.doubtful or not_ready >= MAX_NOT_READY)):
        return replace(health, up=False, misses=0, hits=0, not_ready=not_ready, since_s=now_s)
    return replace(health, not_ready=not_ready, misses=0, hits=0)


def _tokens(_rules: HealthRules, health: Health, now_s: float) -> Health:
    if health.up:
        return replace(health, misses=0, doubtful=False) if health.misses or health.doubtful else health
    if health.not_ready:
        return replace(health, doubtful=False) if health.doubtful else health
    return Health(True, since_s=now_s)


def _silence(_rules: HealthRules, health: Health, _now_s: float) -> Health:
    return health if health.doubtful else replace(health, hits=0, doubtful=True)


def _clean(health: Health) -> Health:
    clean = not (health.misses or health.not_ready or health.doubtful)
    return health if clean else Health(True, since_s=health.since_s)


_STEPS: dict[Evidence, Callable[[HealthRules, Health, float], Health]] = {
    Evidence.HIT: _hit,
    Evidence.MISS: _miss,
    Evidence.REFUSED: _refused,
    Evidence.NOT_READY: _not_ready,
    Evidence.TOKENS: _tokens,
    Evidence.SILENCE: _silence,
}
