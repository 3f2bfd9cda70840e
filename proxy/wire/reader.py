"""Finds requests in the bytes of one client, and what breaks them.

Whose turn it is to be answered, and how long a head may take, is in client.py.
"""

from typing import TYPE_CHECKING

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from proxy.errors import CrossoverError, InvalidRequest
from proxy.protocol.fields import Fields, by_name, text
from proxy.wire.heads import fault_of, head_bytes, too_large
from proxy.wire.request import Incoming, Request, upgrades

if TYPE_CHECKING:
    from proxy.wire.client import Client


class _Over(Exception):
    """Nothing more is read; raised out of the parser to stop it."""


class Reader:
    """Reads one connection and tells its client of requests, or of the refusal behind them. `unfinished_bytes` have
    come since anything of a message was whole; `closed` says that nothing more is read."""

    __slots__ = (
        *("_behind_bytes", "_client", "_fields", "_found", "_incoming", "_most_bytes", "_offer", "_parser"),
        *("_target", "_within", "closed", "unfinished_bytes"),
    )

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._parser = HttpRequestParser(self)
        self._target = b""
        self._fields: Fields = []
        self._incoming: Incoming | None = None  # a body that has not ended
        self._offer: Request | None = None  # its upgrade is passed over, and the parser has to be told of its body
        self._within = False  # a head
        self._found = False  # something whole, in this piece
        self._behind_bytes = 0  # of a piece that ended within a head, but began with something else
        self._most_bytes = 0  # that a head in this piece can have
        self.unfinished_bytes = 0
        self.closed = False

    @property
    def in_body(self) -> bool:
        """Whether the body of a request has not ended."""
        return self._incoming is not None

    def feed(self, data: bytes) -> None:
        """Read a piece."""
        self._most_bytes = self.unfinished_bytes + self._behind_bytes + len(data)
        self._found = False
        try:
            self._parser.feed_data(data)
        except (HttpParserUpgrade, HttpParserError) as stop:
            self._parse_on(self._stopped(data, stop))
        if self._found:
            # A head that came behind something else has begun; it is measured when it has ended.
            self.unfinished_bytes, self._behind_bytes = (1, len(data)) if self._within else (0, 0)
            return
        if not (self._within or self.in_body):
            return  # empty lines between requests begin none (RFC 9112, section 2.2)
        self.unfinished_bytes += len(data)
        if self.unfinished_bytes > self._client.host.rules.max_head_bytes:
            self._overflow()

    def close(self) -> None:
        """Read no more, and let go of what holds this reader."""
        self.closed = True
        self._incoming = self._offer = None
        self._parser = self._client = None  # type: ignore[assignment]

    # ------------------------------------------------------------ what the parser tells

    def on_message_begin(self) -> None:
        """A head begins."""
        self._within = True

    def on_url(self, piece: bytes) -> None:
        """A piece of the target."""
        self._target += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field, of a head or behind a body in chunks."""
        self._fields.append((name, value.rstrip()))

    def on_headers_complete(self) -> None:
        """A head has ended."""
        target, fields = self._target, self._fields
        self._target, self._fields = b"", []
        self._within, self._found = False, True
        if self._offer is not None:
            self._offer = None  # what frames the body of a request that is known already
            return
        client, parser, names = self._client, self._parser, by_name(fields)
        version = parser.get_http_version()
        rules = client.host.rules
        fault: CrossoverError | None = None
        if self._most_bytes > rules.max_head_bytes or len(fields) > rules.max_headers:
            fault = self._size_fault(target, fields)
        # What nearly no request has is looked for in those that have a field twice, none that they need, or a coding.
        if version != "1.1" or b"transfer-encoding" in names or b"host" not in names or len(names) != len(fields):
            fault = fault_of(version, fields, names) or fault
        if fault is not None:
            self._refuse(fault)
            raise _Over
        http10 = version == "1.0"
        method = parser.get_method()
        incoming = _body_of(client, names, http10=http10)
        request = Request(
            _METHODS.get(method) or text(method),
            target.decode("utf-8", "surrogateescape"),
            fields,
            names,
            incoming=incoming,
            client=client,
            http10=http10,
            keeps=parser.should_keep_alive(),
            peer=client.peer,
        )
        if incoming.expected:
            self._incoming = incoming
        if parser.should_upgrade() or b"upgrade" in names:
            self._note_upgrade(request)
        client.asked(request)
        if self.closed:
            raise _Over

    def on_body(self, piece: bytes) -> None:
        """A piece of a body."""
        self._found = True
        if self._incoming is not None:
            self._incoming.feed(piece)

    def on_message_complete(self) -> None:
        """A message has ended."""
        self._found = True
        if self._offer is not None:
            return
        if self._fields:
            self._fields = []  # trailers, which nobody waits for
        if self._incoming is not None:
            self._incoming.end()
            self._incoming = None

    # ------------------------------------------------------------ upgrades

    def _note_upgrade(self, request: Request) -> None:
        """The parser takes a request with an upgrade for one without a body, and for the last. With a client that asks
        in earnest that is right."""
        if request.method == "CONNECT" or upgrades(request):
            request.keeps = False
        elif self._parser.should_upgrade():
            self._offer = request

    def _parse(self, data: bytes | memoryview) -> memoryview | None:
        """None, or what is left behind a request with an upgrade."""
        try:
            self._parser.feed_data(data)
        except (HttpParserUpgrade, HttpParserError) as stop:
            return self._stopped(data, stop)
        return None

    def _stopped(self, data: bytes | memoryview, stop: HttpParserUpgrade | HttpParserError) -> memoryview | None:
        if isinstance(stop, HttpParserUpgrade):
            return memoryview(data)[stop.args[0] :]
        self._fail(stop)
        return None

    def _parse_on(self, rest: memoryview | None) -> None:
        """Go on behind requests whose upgrade is passed over, each time with a fresh parser; behind others not."""
        while rest is not None:
            offer = self._offer
            if offer is None:
                self.closed = True
                return
            self._parser = HttpRequestParser(self)
            if offer.incoming.expected:
                self._parse(_framing(offer))
            self._offer = None
            rest = self._parse(rest)

    # ------------------------------------------------------------ what is wrong

    def _size_fault(self, target: bytes, fields: Fields) -> CrossoverError | None:
        rules = self._client.host.rules
        if len(fields) > rules.max_headers:
            return too_large(rules)
        size_bytes = head_bytes(self._parser.get_method(), target, fields)
        return too_large(rules) if size_bytes > rules.max_head_bytes else None

    def _overflow(self) -> None:
        """A head that does not end, or lines around chunks and behind a body that do not."""
        if self._incoming is not None:
            self._break(self._incoming)
        else:
            self._refuse(too_large(self._client.host.rules))

    def _fail(self, error: HttpParserError) -> None:
        if isinstance(error, HttpParserCallbackError):
            if not self.closed:
                raise error  # ours, and no word of the client's
        elif self._incoming is not None:
            self._break(self._incoming)
        else:
            self._refuse(InvalidRequest("the request is not valid HTTP/1.1"))

    def _break(self, incoming: Incoming) -> None:
        self.closed = True
        incoming.broke(InvalidRequest("the request body is not framed as its headers say"))
        self._incoming = None

    def _refuse(self, error: CrossoverError) -> None:
        self.closed = True
        self._client.refuse(error, bodiless=self._parser.get_method() == b"HEAD")


def _body_of(client: "Client", names: dict[bytes, bytes], *, http10: bool) -> Incoming:
    declared = names.get(b"content-length")
    if declared is None:
        length, expected = None, b"transfer-encoding" in names
    else:
        length = int(declared)
        expected = length > 0
    waits = b"expect" in names and not http10 and names[b"expect"].lower() == b"100-continue"
    return Incoming(client, expected=expected, length=length, waits=waits)


_METHODS = {name.encode(): name for name in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE")}


def _framing(request: Request) -> bytes:
    """A head with nothing but what says how long the body of a request is."""
    named = (b"content-length", b"transfer-encoding")
    lines = [b"%b: %b\r\n" % (name, request.by_name[name]) for name in named if name in request.by_name]
    return b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lines)
