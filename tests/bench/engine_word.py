"""Words with the fake engine itself, past the proxy: how things stand there, and that all streams are to end now."""

import http.client
import json
import time
from dataclasses import dataclass

from bench import messages

# After a contender has failed, its streams may linger at the engine; past this they are somebody's fault.
QUIET_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class State:
    """How many answers an engine has under way, how many events it has sent, and the instants at which readers went
    before their answers had ended."""

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
    until_s = time.monotonic() + QUIET_WITHIN_S
    while state(port).under_way and time.monotonic() < until_s:
        time.sleep(0.05)


def _ask(port: int, path: str) -> State:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        return State(**json.loads(connection.getresponse().read()))
    finally:
        connection.close()
