"""Where a request stands that still runs: since when it waits, on which backend, what that does, and what comes next.

How it came there is in requests.py. Who fills a Running looks at the request and the desk (watch/under_way.py).
"""

from typing import NamedTuple

from proxy.model import Role, Traits
from proxy.telling.figures import count, seconds, title
from proxy.telling.present import why_out

# An answer of which nothing has come for so long is told as one that stands still: a backend that is silent is known as
# that after one or two seconds, and of one that serves the tokens of the longest steps come sooner.
STILL_S = 2.0
# What a backend is from which nothing may be hoped for now.
_GIVES_NOTHING = ("down", "silent")


class Running(NamedTuple):
    """One request under way. Durations are seconds until now.

    `read_s` is since its body was read (None: it is not yet), `here_s` since it was sent to `role`, None while it waits
    for room. `moved`: a first attempt failed; `tied`: one backend alone has the state that it names. `begun` says that
    the head of its answer was passed on, `heard_s` since when nothing more of it has come (None: nothing has);
    `held_up` that the client has been slower than the answer, `full` that it is so now. `in_flight`, `out` and
    `silent_s` are of `role`, and `pace_s` is what a token takes there by the measured speeds; `beside` says why the
    other one serves nobody. It is given up after `limit_s`, which key `limit` sets, and where it waits for room after
    `max_wait_s`.
    """

    route: str
    traits: Traits
    read_s: float | None = 0.0
    role: Role | None = None
    here_s: float = 0.0
    moved: bool = False
    tied: bool = False
    begun: bool = False
    heard_s: float | None = None
    held_up: bool = False
    full: bool = False
    in_flight: int = 0
    out: str | None = None
    silent_s: float | None = None
    pace_s: float | None = None
    beside: str | None = None
    limit: str = "timeouts.first_byte_s"
    limit_s: float = 600.0
    max_wait_s: float = 60.0


def standing(now: Running) -> list[str]:
    """What is so now and what comes next, a sentence each."""
    if now.read_s is None:
        return ["It still comes in: its client has not sent all of its body."]
    if now.role is None:
        return [_waits_for_room(now, now.read_s)]
    said = [_heard(now, now.role), _engine(now, now.role)]
    if now.held_up and not now.full:
        said.append("Its client has taken the answer more slowly than it came, and the engine waits for that.")
    return [*said, *_next(now, now.role)]


def _waits_for_room(now: Running, read_s: float) -> str:
    if now.moved:
        return "It waits for room on the other backend, ahead of those that came later."
    left = f"in {seconds(max(0.0, now.max_wait_s - read_s))} (queue.max_wait_s) it is refused with status 503"
    return f"It waits for room, for {seconds(read_s)} now: no backend that it may use has any; {left}."


def _heard(now: Running, role: Role) -> str:
    if not now.begun:
        return f"It waits for its answer from {role}, for {seconds(now.here_s)} now: nothing of it has come."
    if now.heard_s is None:
        return f"The head of its answer has come from {role} and no data yet; it was sent there {_ago(now.here_s)}."
    if now.full:
        return (
            f"Its answer from {role} has begun and is held back, for {seconds(now.heard_s)} now: its client is slower."
        )
    if now.heard_s < STILL_S:
        return (
            f"Its answer comes from {role}, where it was sent {_ago(now.here_s)}; the latest came {_ago(now.heard_s)}."
        )
    return f"Its answer has begun and stands still: nothing has come from {role} for {seconds(now.heard_s)}."


def _ago(value_s: float) -> str:
    return "just now" if value_s < STILL_S else f"{seconds(value_s)} ago"


def _engine(now: Running, role: Role) -> str:
    """What the backend does, of which the answer is expected."""
    silent = None if now.silent_s is None else f"has given no sign of life for {seconds(now.silent_s)}"
    if now.out == "down":
        return f"{title(role)} {f'{silent} and ' if silent else ''}counts as down."
    if now.out == "silent":
        return f"{title(role)} {silent or why_out(now.out)}: its probe is unanswered too."
    pace = "" if now.pace_s is None else f", with which by the measured speeds a token takes {seconds(now.pace_s)}"
    beside = f"has {count(now.in_flight, 'sequence')} in flight now{pace}"
    if now.out is not None:
        return f"{title(role)} {why_out(now.out)}, but goes on with what it has; it {beside}."
    return (
        f"{title(role)} {f'{silent}, though it is not late yet, and' if silent else 'answers its probes and'} {beside}."
    )


def _next(now: Running, role: Role) -> list[str]:
    waited_s = now.here_s if now.heard_s is None else now.heard_s
    if now.full:
        return ["It goes on as its client reads."]
    if waited_s < STILL_S and now.out not in _GIVES_NOTHING:
        return []
    left = f"in {seconds(max(0.0, now.limit_s - waited_s))} ({now.limit})"
    if now.begun:
        ends = f"if nothing comes, it is ended with an error {left}"
        return [f"An answer that has begun is never moved: it goes on when {role} does; {ends}."]
    given_up = f"without a byte it is given up there {left}"
    if now.out not in _GIVES_NOTHING:
        return [f"{given_up[0].upper()}{given_up[1:]}."]
    return [f"{_way_out(now, role)}; {given_up}."]


def _way_out(now: Running, role: Role) -> str:
    """What becomes of a request that waits on a backend from which nothing comes."""
    other = role.other
    if now.tied:
        return f"Only {role} has the state that it names, so it waits there"
    if now.moved:
        return "It was moved once, and nothing is moved twice, so it waits there"
    if now.beside is not None:
        return f"{title(other)} is no better, it {why_out(now.beside)}, so it waits where it is"
    once = "once, as far as the retry budget lets it"
    if now.out == "silent":
        return f"If {role} stays so until it counts as down, the request goes to {other}, {once}"
    return f"While nothing at all comes from {role}, the request goes to {other} with its next unanswered probe, {once}"
