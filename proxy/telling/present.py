"""Where new requests go now and why, in one sentence, for every policy and every state of the backends.

What a policy says is in policies.py, why one request went where it went in requests.py. Whoever fills a Present
(state.py) looks at the desk (reading.py).
"""

from proxy.model import ROLES, Policy, Role
from proxy.telling.figures import count
from proxy.telling.policies import asked, chosen, past
from proxy.telling.state import Present

_STATES = {
    "draining": "is draining",
    "down": "does not answer its probes",
    "circuit open": "has its circuit open",
    "trial": "takes single trial requests after its failures",
    "silent": "gives no sign of life",
    "full": "is full",
    "ramping": "has just come back and gets its share bit by bit",
}
# Why a backend takes nothing at all, or next to nothing; a full one, or one that ramps up, is not out for good.
_OUT = ("draining", "down", "circuit open", "trial")
_STOPPING = {
    "starting": "The proxy is starting and takes no requests yet",
    "draining": "The proxy is stopping and takes no new requests",
    "stopped": "The proxy has stopped",
}


# With both silent neither is kept from requests, since the fault may be anywhere: they go where they would go anyway.
_NO_SIGN = "Neither backend gives a sign of life: new requests are sent to them all the same, and wait there"


def now(present: Present) -> str:
    """One sentence, its full stop included."""
    if present.phase in _STOPPING:
        return f"{_STOPPING[present.phase]}."
    out = [role for role in ROLES if present.of(role).out in _OUT]
    if not present.room:
        return f"{_no_room(present)}."
    if len(out) == len(ROLES):
        told = _none(present)
    elif all(present.of(role).out == "silent" for role in ROLES):
        told, out = _NO_SIGN, list(ROLES)
    elif out and _wish(present) is None:
        told, out = _beside(present, out[0])
    elif not out and (silent := _silent(present)) is not None:
        told, out = f"New requests go to {silent.other}, since {_state(present, silent)}", [silent]
    else:
        told = _sent(present, out)
    more = [said for role in ROLES if role not in out and (said := _short(present, role))]
    if present.waiting:
        more.append(f"{count(present.waiting, 'request')} {_waits(present.waiting)} for room")
    if present.learning_suspended:
        more.append("what was learned did harm, so the speeds as measured hold for now")
    if present.phase == "settling":
        more.append("the proxy is about to stop")
    return "; ".join([told, *more]) + "."


def _sent(present: Present, out: list[Role]) -> str:
    """Where requests are sent while there is room; first what most of the latest did where neither policy nor operator
    sends them, and last what sent them and is over."""
    lately = present.lately
    if present.pinned is None and (most := asked(lately)) is not None:
        return f"{most}; {_wished(present, 'others', out) or chosen(present, 'others', None)}"
    if (wished := _wished(present, "All requests", out)) is not None:
        return wished
    if (before := past(lately)) is not None:
        return f"{chosen(present, 'New requests', None)}; {before}"
    return chosen(present, "New requests", lately)


def _no_room(present: Present) -> str:
    """New requests find no place: they wait, or not even that."""
    states = " and ".join(f"{role} {_short_state(present, role)}" for role in ROLES if present.of(role).out is not None)
    since = f", since {states}" if states else ", since no backend has room for them"
    waits = f"{count(present.waiting, 'request')} {_waits(present.waiting)}"
    most = "" if present.max_waiting is None else f" of at most {present.max_waiting:,}"
    if present.refusing:
        return f"New requests are refused{since}, and {waits} already{most} (queue.max_waiting)"
    return f"New requests wait for room{since}; {waits}{most}"


def _none(present: Present) -> str:
    """No backend is eligible, which stops nobody who comes all the same."""
    outs = {present.of(role).out for role in ROLES}
    if outs == {"draining"}:
        return "No backend takes requests: both are draining; those that come all the same are tried on both"
    both = " and ".join(_state(present, role) for role in ROLES)
    return f"No backend serves ({both}): new requests are tried on both all the same"


def _beside(present: Present, role: Role) -> tuple[str, list[Role]]:
    """Where requests go that `role` does not take, and of which backends that is all there is to say."""
    other, why = role.other, _state(present, role)
    if present.of(role).out == "trial":
        return f"All but trial requests go to {other}, since {why}", [role]
    if present.of(other).out == "silent":
        told = f"No backend serves ({why} and {_state(present, other)}): new requests are sent to {other} all the same"
        return f"{told}, and wait there", list(ROLES)
    return f"All requests go to {other}, since {why}", [role]


def _silent(present: Present) -> Role | None:
    """The backend that is kept from requests since it gives no sign of life: whatever the policy says, but no pin."""
    if _wish(present) is not None:
        return None
    return next((role for role in ROLES if present.of(role).out == "silent" and not present.of(role.other).out), None)


def _waits(waiting: int) -> str:
    return "waits" if waiting == 1 else "wait"


def _wish(present: Present) -> Role | None:
    """The role that everything is pinned to."""
    if present.pinned is not None:
        return present.pinned
    return present.pin if present.policy is Policy.PINNED else None


def _wished(present: Present, who: str, out: list[Role]) -> str | None:
    wish = _wish(present)
    if wish is None:
        return None
    source = "an operator pinned them there" if present.pinned is not None else "policy pinned sends them there"
    if wish not in out:
        return f"{who} go to {wish}: {source}"
    source = source.replace("there", f"to {wish}")
    return f"{who} go to {wish.other}: {source}, which {why_out(present.of(wish).out)}"


def _short(present: Present, role: Role) -> str | None:
    """Why a backend that serves does not take all it would be sent."""
    return None if present.of(role).out is None else f"{role} {_short_state(present, role)}"


def _short_state(present: Present, role: Role) -> str:
    side = present.of(role)
    limit = "" if side.max_in_flight is None else f" ({side.in_flight:,} of {side.max_in_flight:,})"
    return f"{why_out(side.out)}{limit if side.out == 'full' else ''}"


def _state(present: Present, role: Role) -> str:
    return f"{role} {why_out(present.of(role).out)}"


def why_out(out: str | None) -> str:
    """Why a backend takes nothing new or not all, as the rest of a sentence about it."""
    return "takes nothing new" if out is None else _STATES.get(out, out)
