"""The one error tree: what went wrong, whose side, may it be retried, and how it is told to the client.

The shapes of error bodies are in protocol/dialects.py; translating foreign errors is done at the wire.
"""

from enum import StrEnum
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class Side(StrEnum):
    """Whose fault an error is."""

    CLIENT = "client"
    PROXY = "proxy"
    BACKEND = "backend"


class CrossoverError(Exception):
    """Base of all errors of our own making. `message` tells the mend and never quotes a body, prompt or key."""

    side = Side.PROXY
    status = 500
    code = "internal_error"
    error_type = "server_error"
    retry_after_s: float | None = None

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        if retry_after_s is not None:
            self.retry_after_s = retry_after_s


class ConfigError(CrossoverError):
    """The configuration cannot be used; `message` lists every problem, one a line."""

    code = "config_invalid"


# ---------------------------------------------------------------- the client's side


class InvalidRequest(CrossoverError):
    """The request cannot be forwarded as it is."""

    side = Side.CLIENT
    status = 400
    code = "invalid_request"
    error_type = "invalid_request_error"


class UnknownRoute(InvalidRequest):
    """The path is not on the allow-list."""

    status = 404
    code = "unknown_route"


class RouteRefused(InvalidRequest):
    """The path exists on the engine and is an operator's, so it is never reachable from the client port."""

    status = 403
    code = "route_refused"
    error_type = "permission_error"


class MethodNotAllowed(InvalidRequest):
    """The path is known and the method is not; `allow` has the methods that are."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str, *, allow: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.allow = allow


class KeyRefused(InvalidRequest):
    """`listen.api_keys_file` asks for a key, and the request has none or one that is not on the list."""

    status = 401
    code = "invalid_api_key"


class UpgradeRefused(InvalidRequest):
    """WebSocket and other upgrades are not tunnelled."""

    status = 501
    code = "upgrade_not_supported"


class CodingUnsupported(InvalidRequest):
    """The body comes in a transfer coding other than chunks."""

    status = 501
    code = "transfer_coding_unsupported"


class SessionUnrouted(InvalidRequest):
    """The request names state that lives in one engine, and nothing says which."""

    code = "session_unrouted"


class BodyTooLarge(InvalidRequest):
    """The body is over `listen.max_body_bytes`."""

    status = 413
    code = "body_too_large"


class BodyTimeout(InvalidRequest):
    """The client stopped sending its body."""

    status = 408
    code = "body_timeout"


class BodyTooSlow(BodyTimeout):
    """The client sends its body more slowly than `listen.min_body_bytes_per_s`."""

    code = "body_too_slow"


class HeadTimeout(InvalidRequest):
    """The client did not end its request's head within `listen.head_timeout_s`."""

    status = 408
    code = "head_timeout"


class HeadTooLarge(InvalidRequest):
    """The request's head is over `listen.max_head_bytes` or `listen.max_headers`."""

    status = 431
    code = "head_too_large"


class VersionUnsupported(InvalidRequest):
    """The request is in another version of HTTP than 1.0 or 1.1."""

    status = 505
    code = "http_version_not_supported"


# ---------------------------------------------------------------- our own side


class QueueFull(CrossoverError):
    """No room on any backend and none in the queue."""

    status = 429
    code = "queue_full"
    error_type = "rate_limit_error"
    retry_after_s = 1.0


class QueueTimeout(CrossoverError):
    """Waited `queue.max_wait_s` for room in vain."""

    status = 503
    code = "queue_timeout"
    error_type = "overloaded_error"
    retry_after_s = 1.0


class BodiesFull(CrossoverError):
    """The bodies of all requests together are at `listen.max_held_body_bytes`."""

    status = 503
    code = "bodies_full"
    error_type = "overloaded_error"
    retry_after_s = 1.0


class TooManyConnections(CrossoverError):
    """As many connections are open as `listen.max_connections`, or the limit of open files, allows."""

    status = 503
    code = "too_many_connections"
    error_type = "overloaded_error"
    retry_after_s = 1.0


class ShuttingDown(CrossoverError):
    """The proxy is draining and takes no new requests."""

    status = 503
    code = "shutting_down"
    error_type = "overloaded_error"
    retry_after_s = 1.0


# ---------------------------------------------------------------- the backend's side


class UpstreamError(CrossoverError):
    """A backend failed an attempt. `reached` says whether it may have begun the work (no: retrying is free)."""

    side = Side.BACKEND
    status = 502
    code = "backend_failed"
    error_type = "upstream_error"
    reached = True


class BackendUnreachable(UpstreamError):
    """No connection could be made; nothing reached the backend."""

    code = "backend_unreachable"
    reached = False


class ConnectTimeout(BackendUnreachable):
    """No connection was made within `timeouts.connect_s`; nothing reached the backend."""

    code = "connect_timeout"


class OutOfSockets(UpstreamError):
    """The proxy had no open file, local port or memory left for a connection to a backend; no backend is to blame."""

    side = Side.PROXY
    status = 503
    code = "out_of_sockets"
    error_type = "overloaded_error"
    reached = False
    retry_after_s = 1.0


class BackendBroken(UpstreamError):
    """The connection ended, or what came was not HTTP, before the answer was whole."""

    code = "backend_broken"


class StaleConnection(UpstreamError):
    """A kept connection was closed by the backend just as it was used again; a fresh one may be tried once."""

    code = "stale_connection"


class FirstByteTimeout(UpstreamError):
    """Nothing came within `timeouts.first_byte_s`."""

    status = 504
    code = "first_byte_timeout"
    error_type = "timeout_error"


class BackendSilent(FirstByteTimeout):
    """Nothing came of a backend until it counted as down, and the other one serves."""

    code = "backend_silent"


class StallTimeout(UpstreamError):
    """The answer began and then nothing came for `timeouts.stall_s`."""

    status = 504
    code = "stall_timeout"
    error_type = "timeout_error"


class BackendBusy(UpstreamError):
    """A backend said inside a stream that its queue is full: busy, not broken."""

    status = 503
    code = "backend_busy"
    error_type = "overloaded_error"
    retry_after_s = 1.0


class StateUnreachable(UpstreamError):
    """The backend that holds the state that a request names takes no requests now; no other can serve it."""

    status = 503
    code = "state_unreachable"
    error_type = "overloaded_error"
    reached = False
    retry_after_s = 1.0


class StreamCut(UpstreamError):
    """An answer began and ended without its dialect's end."""

    code = "stream_cut"


def without_frames(error: E) -> E:
    """The error, its causes and theirs without their tracebacks. These hold the locals of every function that an error
    passed: where the error is among them, only the garbage collector can ever free all that they hold."""
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__context__
    return error
