"""What a connection needs of the server that it belongs to.

The server is in front.py, the connection in client.py.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from proxy.closing import CloseReason
from proxy.errors import CrossoverError
from proxy.protocol.fields import Fields
from proxy.wire.arrivals import ConnectionRules, Surplus
from proxy.wire.downstream import Reply
from proxy.wire.request import Request

if TYPE_CHECKING:
    from proxy.wire.client import Client


class Gate(Protocol):
    """Says what browsers are told with every answer: nothing, where there are no `origins`."""

    @property
    def origins(self) -> tuple[bytes, ...]:
        """The origins whose pages may read answers."""

    def stamp(self, request: Request, fields: Fields) -> Fields:
        """The fields of an answer of any kind, with what browsers are told."""


class Door(Protocol):
    """Answers requests; None where the answer went through a Downstream."""

    @property
    def gate(self) -> Gate:
        """See Gate."""

    def __call__(self, request: Request) -> Awaitable[Reply | None]:
        """Answer one request."""


class Host(Protocol):
    """What a connection needs of the server that it belongs to. `connections` are open; `heads` have not ended, `idle`
    wait for a request, each since when, oldest first; `crowded` have too much behind the request that is answered, and
    that request as the last look saw it."""

    @property
    def door(self) -> Door:
        """Who answers."""

    rules: ConnectionRules
    leaving: bool
    connections: set["Client"]
    heads: dict["Client", float]
    idle: dict["Client", float]
    crowded: dict["Client", Request | None]
    surplus: Surplus

    def room(self) -> int:
        """How many more connections there may be."""

    def watch(self) -> None:
        """Look after the limits for as long as there are connections."""

    def forget(self, client: "Client") -> None:
        """A connection has ended."""

    def closed(self, reason: CloseReason) -> None:
        """Count a connection that is ended without an answer."""

    def refused(self, error: CrossoverError, peer: str) -> None:
        """Count and log what is refused without a request."""

    def failed(self, cause: Exception, peer: str) -> CrossoverError:
        """Count and log what nobody caught; what the client is told of it."""
