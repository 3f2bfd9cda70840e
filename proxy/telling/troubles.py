"""What is wrong now, each in one short sentence with what it means for requests: for whoever looks at the present.

Warnings about how engines were started are elsewhere (protocol/agreement.py), and so is what has failed lately
(watch/bursts.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

from proxy.model import ROLES, Role
from proxy.telling.figures import count, title
from proxy.telling.state import Present

# The code of each, what is so, and what follows: that is left out where no backend serves, and follows of none.
_MEANS = {
    "draining": ("drained", "is drained by an operator", ", who keeps new requests from it"),
    "down": ("down", "is down: it does not answer its probes", " and gets no requests"),
    "circuit open": ("circuit_open", "failed too many requests in a row (circuit open)", " and gets none for a while"),
    "trial": ("circuit_open", "failed too many requests in a row (circuit half open)", " and gets single trial ones"),
}
_STOPPING = {
    "starting": "the proxy is starting and takes no requests yet",
    "settling": "the proxy was told to stop: /ready answers 503, so that load balancers turn away",
    "draining": "the proxy is stopping and takes no new requests",
    "stopped": "the proxy has stopped",
}


# Of a problem with the configuration, which may quote paths of any length, so much is told; the log has all of it.
MAX_CHARACTERS = 500


class Trouble(NamedTuple):
    """One thing that is wrong: `code` of a closed set; `severe` where requests fail or wait for it, or may at once."""

    code: str
    message: str
    severe: bool = True


def troubles(present: Present, refused: Sequence[str] = ()) -> list[Trouble]:
    """All of them, the worst first; empty where every request is served where it should be. `refused` is what is wrong
    with a changed configuration that was not taken over."""
    found: list[Trouble] = []
    if present.phase in _STOPPING:
        found.append(Trouble("not_ready", f"{_STOPPING[present.phase]}."))
    outs = {role: present.of(role).out for role in ROLES}
    nowhere = all(out in _MEANS and out != "trial" for out in outs.values())
    if nowhere:
        message = "no backend is eligible: /ready answers 503, and requests that come all the same are tried on both."
        found.append(Trouble("not_ready", message))
    if not present.room:
        found.append(_no_room(present))
    if refused:
        found.append(_refused(refused))
    found += [_out(role, out, nowhere=nowhere) for role, out in outs.items() if out in _MEANS]
    return found


def _refused(problems: Sequence[str]) -> Trouble:
    first = problems[0] if len(problems[0]) <= MAX_CHARACTERS else f"{problems[0][:MAX_CHARACTERS]} ..."
    more = f", and {count(len(problems) - 1, 'more problem')}" if len(problems) > 1 else ""
    message = (
        f"the changed configuration was refused, and the one before holds: {first}{more}. Mend the file: once it is "
        "right it is taken over by itself."
    )
    return Trouble("reload_refused", message, severe=False)


def _no_room(present: Present) -> Trouble:
    waits = count(present.waiting, "request") + (" waits" if present.waiting == 1 else " wait")
    if present.refusing:
        return Trouble("refusing", f"new requests are refused with status 429: there is no room, and {waits} already.")
    return Trouble("waiting", f"new requests wait: there is no room, and {waits} for it.", severe=False)


def _out(role: Role, out: str | None, *, nowhere: bool) -> Trouble:
    code, what, then = _MEANS[out or ""]
    return Trouble(code, f"{title(role)} {what}{'' if nowhere else then}.", severe=code != "drained")
