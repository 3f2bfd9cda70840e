"""Where a streamed answer leaves: straight onto the connection, one write a step, with faults where asked for."""

import asyncio

from proxy.lab.fault_acts import reset
from proxy.lab.faults import STREAM_KINDS, Fault, FaultKind


class Outlet:
    """Bytes of one streamed answer. Pieces that come before the connection is attached wait here.

    The engine's loop feeds it without awaiting, which saves a task switch for every token; what a slow reader leaves
    behind waits in the transport and is bounded by the length of the answer.
    """

    def __init__(self, fault: Fault | None = None) -> None:
        self.begun = asyncio.Event()
        self.over = asyncio.Event()
        self._fault = fault if fault is not None and fault.kind in STREAM_KINDS else None
        self._transport: asyncio.WriteTransport | None = None
        self._chunked = False
        self._pending: list[tuple[bytes, bytes | None]] = []
        self._pieces = 0
        self._dead = False

    def attach(self, transport: asyncio.WriteTransport | None, *, chunked: bool) -> None:
        """Send on this connection from now on; the head was sent. `chunked` frames bytes as HTTP chunks."""
        self._transport, self._chunked = transport, chunked
        self._strike_at_once()
        pending, self._pending = self._pending, []
        for piece, closing in pending:
            self.feed(piece, closing)

    def feed(self, piece: bytes, closing: bytes | None = None) -> None:
        """Send one piece of whole events; `closing` is what follows after the last piece, None before it."""
        if self._transport is None:
            self._pending.append((piece, closing))
            self.begun.set()
        elif not self._dead:
            if self._fault is not None and self._pieces >= self._fault.arg:
                self._strike(piece)
                return
            self._pieces += 1
            self._close_or_go_on(piece, closing)

    def _close_or_go_on(self, piece: bytes, closing: bytes | None) -> None:
        if closing is not None and self._fault is None:
            self._send(piece + closing)
        else:
            self._send(piece)
        if closing is not None:
            self._dead = True
            if self._fault is None or self._fault.kind is FaultKind.TRUNCATE:
                self.over.set()
            else:
                # The answer was shorter than the fault's count of pieces: it strikes in place of the end.
                self._strike(closing)

    def _strike_at_once(self) -> None:
        if self._fault is not None and self._fault.kind is FaultKind.STALL and self._fault.arg == 0:
            self._dead = True

    def _strike(self, piece: bytes) -> None:
        self._dead = True
        match self._fault.kind if self._fault is not None else None:
            case FaultKind.TRUNCATE:
                self.over.set()
            case FaultKind.RESET_STREAM:
                reset(self._transport)
            case FaultKind.DIE_MID_LINE:
                self._send(piece[: max(1, len(piece) // 2)])
                if self._transport is not None:
                    self._transport.close()
            case _:
                pass  # A stall says nothing more.

    def _send(self, data: bytes) -> None:
        transport = self._transport
        if data and transport is not None and not transport.is_closing():
            transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
