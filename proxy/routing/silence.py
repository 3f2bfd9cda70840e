"""When a probe's answer is late, and when a backend that is silent since is kept from new requests.

Silent is one whose probe's answer is late, and from which nothing else has come since that was sent: no byte of an
answer, of a generation, of its load. It stays eligible, since an engine in a long step may be as quiet: who asks for it
by name still gets it, and it needs no row of good probes to come back. The timer is in wire/health.py.

One that stands still is down, and for nothing but its silence: then also what waits there is better off elsewhere.
"""

from collections.abc import Collection

from proxy.model import BackendLoad, LoadSnapshot, Role
from proxy.routing.health import Health, HealthRules

# An answer is late when it takes this many times as long as the slowest of late, and a backend stands still when it is
# silent for so many times the longest. Less, and one that takes a little
# longer than ever is late; more, and an engine with a slow page is silent only with its first miss.
TIMES = 2.0


def late_s(took_s: Collection[float], least_s: float, limit_s: float) -> float:
    """After how many seconds an answer is late that took so long before: after `least_s` at the earliest, and where
    nothing is known after `limit_s`, with which it is a miss."""
    if not took_s:
        return limit_s
    return min(limit_s, max(least_s, TIMES * max(took_s)))


def is_silent(snapshot: LoadSnapshot, role: Role) -> bool:
    """Whether a backend is silent while the other one serves and is not: when both are, the fault may be anywhere, and
    neither is kept from requests."""
    return snapshot.of(role).silent and serves(snapshot.of(role.other))


def stands_still(rules: HealthRules, health: Health, unanswered: int, silent_s: float, stood_s: float) -> bool:
    """Whether a backend is down and nothing at all comes from it: `unanswered` probes in a row had no answer, not even
    an error, with nothing else since the first of them, and as many misses take one out. A doubtful one goes by one.

    An engine that says nothing at all while it works is as quiet. So it takes twice as long as the longest such silence
    that ended by itself: work of one length is made twice once at most."""
    enough = unanswered >= (1 if health.doubtful else rules.max_misses)
    return health.up is False and enough and silent_s > TIMES * stood_s


def may_move(snapshot: LoadSnapshot, role: Role) -> bool:
    """Whether what waits on a backend that stands still may go to the other one: that serves and is not silent. When
    both are out, nobody is better off there, and the first may go on."""
    return serves(snapshot.of(role.other))


def serves(load: BackendLoad) -> bool:
    """Whether a backend may be sent requests, and is heard of."""
    return load.eligible and not load.silent
