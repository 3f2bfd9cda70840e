"""Words with the fake engine itself, past the proxy: how things stand there, and that all streams are to end now."""

import contextlib
import http.client
import json
import select
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from bench import messages

# After a contender has failed, its streams may linger at the engine; past this they are somebody's fault.
QUIET_WITHIN_S = 10.0
ANSWER_WITHIN_S = 30.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class State:
    """How many answers an engine has under way, how many events it has sent, and the instants at which readers went
    before their answers had ended; `changes` is the number of this state, events aside."""

    changes: int
    under_way: int
    sent: int
    gone_ns: list[int]


def state(port: int) -> State:
    """How things stand."""
    return _ask(port, messages.STATE_PATH)


def end_streams(port: int) -> None:
    """Have every stream end at its next turn."""
    _ask(port, messages.END_PATH)


def wait_for_quiet(port: int) -> None:
    """Wait until no answer is under way, or long enough."""
    seen([port], lambda states: not states[port].under_way, QUIET_WITHIN_S)


def seen(ports: Iterable[int], look: Callable[[dict[int, State]], T], within_s: float) -> T:
    """What there is to be seen in the states of engines, by port, once it is there, or what was there instead when it
    never is. The engines tell when something has changed."""
    states = {port: state(port) for port in ports}
    until_s = time.monotonic() + within_s
    while not (found := look(states)) and (left_s := until_s - time.monotonic()) > 0:
        _follow(states, left_s)
    return found


def _follow(states: dict[int, State], within_s: float) -> None:
    """Wait until one of the states has changed, and take over all that have."""
    with contextlib.ExitStack() as stack:
        asked = {}
        for port, known in states.items():
            connection = stack.enter_context(contextlib.closing(_connection(port)))
            connection.request("GET", f"{messages.CHANGED_PATH}?{known.changes}")
            asked[connection.sock] = (port, connection)
        for told in select.select(list(asked), [], [], within_s)[0]:
            port, connection = asked[told]
            states[port] = _state_of(connection)


def _ask(port: int, path: str) -> State:
    with contextlib.closing(_connection(port)) as connection:
        connection.request("GET", path)
        return _state_of(connection)


def _connection(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_WITHIN_S)


def _state_of(connection: http.client.HTTPConnection) -> State:
    return State(**json.loads(connection.getresponse().read()))
