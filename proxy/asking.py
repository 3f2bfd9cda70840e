"""What a request asks, read from its head and body, and how an engine is asked for it."""

from proxy.model import Traits
from proxy.protocol import headers, openai
from proxy.protocol.routes import Route
from proxy.wire.connection import Call
from proxy.wire.pair import Line
from proxy.wire.request import Request

# What engines are told of a request in X-Crossover-Attempt.
FIRST, SECOND = b"1", b"2"


def asked(request: Request, route: Route, content: bytes, *, prefixed: bool) -> Traits:
    """What is known of a request before it is decided on; `prefixed` when the beginning of its prompt counts too."""
    named = request.by_name
    return openai.read_traits(
        route,
        content,
        named.get(b"content-type", b""),
        named.get(b"content-encoding", b""),
        headers.asked_role(named.get(b"x-crossover-backend")),
        prefixed=prefixed,
        key=named.get(b"x-smg-routing-key") or named.get(b"x-session-id", b""),
    )


def call_to(line: Line, request: Request, request_id: str, content: bytes, *, again: bool, keyed: bool) -> Call:
    """The request as one engine gets it: `again` after a failed attempt, `keyed` where the key is one of ours."""
    head = headers.upstream_head(
        request.method,
        request.target,
        request.fields,
        host=line.host,
        api_key=line.api_key,
        request_id=request_id.encode(),
        peer=request.peer.encode(),
        drop_client_key=keyed,
        attempt=SECOND if again else FIRST,
        body_bytes=len(content) if request.incoming.declared else None,
    )
    return Call(request.method, head, content)
