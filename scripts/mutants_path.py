"""More faults for mutants.py: those of a path on which bytes go from one connection to the other within one turn of the
loop, and connections of both sides are kept.

The others, and what an edit has to look like, are in mutants_list.py.
"""

from mutants_terms import mutant

PATH_MUTANTS = (
    # ---------------------------------------------------------------- the shortest way
    mutant(
        "express-believes-a-size",
        "a read that ends like a chunk passes for one, whatever its size line says",
        "test_wire_express",
        ("proxy/wire/express.py", "            data.startswith(line)\n            and data", "            data"),
    ),
    mutant(
        "express-tells-nothing",
        "finish, counts and errors take the shortest way, and nobody reads them",
        "test_wire_express flow/test_flow_streams truncation",
        ("proxy/wire/express.py", "            and self._telling(data) is None\n", ""),
    ),
    mutant(
        "express-open-within-an-event",
        "the shortest way opens though the beginning of an event is held back",
        "flow/test_flow_bytes test_wire_passage_pushed framing",
        (
            "proxy/wire/passage.py",
            "ready is payload and out.chunked and scanner.at_boundary and not (counted or scanner.ended)",
            "out.chunked and not (counted or scanner.ended)",
        ),
    ),
    # ---------------------------------------------------------------- bytes
    mutant(
        "framed-though-held",
        "a chunk passes as it came though the beginning of its event was held back",
        "flow/test_flow_bytes flow/test_flow_streams",
        (
            "proxy/wire/passage.py",
            "        if framed and ready is payload and out.chunked:\n",
            "        if framed and ready and out.chunked:\n",
        ),
    ),
    mutant(
        "held-overtaken",
        "a piece that ends an event overtakes what was held of it",
        "framing flow/test_flow_bytes",
        (
            "proxy/protocol/hold.py",
            "        if not self._held and data.endswith(self._end):\n",
            "        if data.endswith(self._end):\n",
        ),
    ),
    mutant(
        "framed-unread",
        "what passes as it came is not looked at: no usage, no end",
        "truncation flow/test_flow_streams",
        ("proxy/wire/passage.py", "            if not scanned:\n", "            if not (scanned or framed):\n"),
    ),
    mutant(
        "last-chunk-missing",
        "an answer in chunks that is whole does not say so",
        "framing",
        ("proxy/wire/downstream.py", 'b"0\\r\\n\\r\\n"', 'b""'),
    ),
    mutant(
        "beyond-its-length",
        "what an answer has beyond its length goes to the client, as the next answer",
        "test_wire_downstream",
        ("proxy/wire/downstream.py", "            payload = payload[: self._left_bytes]\n", ""),
    ),
    mutant(
        "event-fills-the-length",
        "an error event is cut to what a broken stream has left of its length, and the stream looks whole",
        "test_wire_passage_ends",
        (
            "proxy/wire/passage.py",
            "            told = self._out.stays_short_with(len(event))\n",
            "            told = True\n",
        ),
    ),
    # ---------------------------------------------------------------- back-pressure
    mutant(
        "full-from-the-start",
        "a client that was full when its answer began to be poured does not hold the engine up",
        "test_wire_passage_ends",
        ("proxy/wire/passage.py", "            if out.full:\n                self._full()\n", ""),
    ),
    mutant(
        "room-not-told",
        "an engine that was held up is not read on when the client takes again",
        "flow/test_flow_streams",
        (
            "proxy/wire/passage.py",
            "            self._guard.room()\n        self.opened.answer.resume()\n",
            "            self._guard.room()\n",
        ),
    ),
    mutant(
        "body-behind-unbounded",
        "of a body that waits behind other requests all is read, once an answer before it has ended",
        "test_front_limits_behind",
        (
            "proxy/wire/request.py",
            "        if self._waiting_bytes > MAX_WAITING_BYTES and self._client is not None:\n            self._client.pause()\n",
            "        if self._waiting_bytes - len(data) <= MAX_WAITING_BYTES < self._waiting_bytes and self._client is not None:\n            self._client.pause()\n",
        ),
    ),
    mutant(
        "answers-pile-up",
        "short answers are written on and on to a client that takes none of them",
        "test_front_limits_behind",
        (
            "proxy/wire/client.py",
            "                if self._full and self._keeps:\n",
            "                if False:\n",
        ),
    ),
    mutant(
        "client-paused-for-good",
        "a client that was read no further behind a body that nobody took is never read again",
        "test_front test_front_limits test_front_limits_behind",
        (
            "proxy/wire/client.py",
            "        if self._paused:\n            self.resume()\n        if self._keeps",
            "        if self._keeps",
        ),
    ),
    mutant(
        "unread-look-off",
        "clients that take nothing of answers that are written whole stay",
        "test_front_limits",
        ("proxy/front.py", "            self._drop_unread(now_s)\n", "            pass\n"),
    ),
    mutant(
        "stall-clock-stands",
        "what comes of an answer does not put the end of a silence off",
        "timeouts",
        (
            "proxy/wire/stall.py",
            "        due_s = max(self._since_s, self._heard_s()) + self.limit_s\n",
            "        due_s = self._born_s + self.limit_s\n",
        ),
        (
            "proxy/wire/stall.py",
            "        self.stalled = False\n",
            "        self.stalled = False\n        self._born_s = self._since_s\n",
        ),
        ("proxy/wire/stall.py", '        "stalled",\n', '        "_born_s",\n        "stalled",\n'),
    ),
    # ---------------------------------------------------------------- kept connections
    mutant(
        "kept-after-surplus",
        "an engine's connection is kept though bytes came behind its answer",
        "test_wire_calls",
        ("proxy/wire/connection.py", "        if clean and self._keeps ", "        if self._keeps "),
    ),
    mutant(
        "kept-while-sending",
        "an engine's connection is kept though its request is not sent whole",
        "test_wire_connection",
        (
            "proxy/wire/connection.py",
            " and self._rest is None and not self.transport.get_write_buffer_size():",
            ":",
        ),
    ),
    mutant(
        "kept-paused",
        "an engine's connection whose answer ended while it was paused is kept and never read again",
        "test_wire_connection",
        (
            "proxy/wire/connection.py",
            "            self.steer(reading=True)\n            self._home",
            "            self._home",
        ),
    ),
    mutant(
        "half-answer-replayed",
        "a prompt whose answer had begun is sent again when the kept connection breaks",
        "test_wire_calls",
        ("proxy/wire/calls.py", "        if reused and connection.silent and ", "        if reused and "),
    ),
    mutant(
        "kept-behind-an-unread-body",
        "a client's connection is kept though the body of its request has not come",
        "flow/test_flow_pipelining",
        (
            "proxy/wire/client.py",
            "request.keeps and request.incoming.ended and not self.host.leaving",
            "request.keeps and not self.host.leaving",
        ),
    ),
    mutant(
        "answered-out-of-turn",
        "a request that came behind another is answered at once",
        "test_front flow/test_flow_pipelining",
        (
            "proxy/wire/client.py",
            "        if self._answering is None:\n            self._answering = request\n",
            "        if True:\n            self._answering = request\n",
        ),
    ),
    mutant(
        "answered-last-first",
        "of requests that wait behind another the last is answered first",
        "test_front flow/test_flow_pipelining",
        ("proxy/wire/client.py", "self._queue.pop(0)", "self._queue.pop()"),
    ),
    # ---------------------------------------------------------------- ends
    mutant(
        "answer-left-open",
        "the answer for a client that has left is not given up",
        "disconnects",
        (
            "proxy/wire/passage.py",
            "        finally:\n            answer.close()\n",
            "        finally:\n            pass\n",
        ),
    ),
    mutant(
        "poured-released-twice",
        "a request whose answer was poured lowers the count twice",
        "accounting leaks",
        (
            "proxy/trip.py",
            "            self._desk.settle(assignment, self._outcome, unheard=self._unheard)\n",
            "            self._desk.settle(assignment, self._outcome, unheard=self._unheard)\n            if self._passage is not None and self._passage._over is not None:\n                assignment.lease.book.in_flight -= assignment.lease.weight\n",
        ),
    ),
    mutant(
        "poured-never-released",
        "a request whose answer was poured stays counted",
        "accounting leaks",
        (
            "proxy/trip.py",
            "        if assignment is not None:\n            self._desk.settle(",
            "        if assignment is not None and (self._passage is None or self._passage._over is None):\n            self._desk.settle(",
        ),
    ),
    mutant(
        "body-held-by-the-stream",
        "a request's body is held for as long as its answer runs",
        "bodies bodies_memory flow/test_flow_limits",
        ("proxy/trip.py", "        self._free()  # nothing is sent twice", "        # nothing is sent twice"),
    ),
    mutant(
        "ended-behind-its-end",
        "an answer that is written whole in the turn in which the proxy ends counts as cut by it",
        "test_wire_passage_ends",
        (
            "proxy/wire/passage.py",
            "        if self._over is not None and self._over.done():\n            return\n        self.error = error\n",
            "        self.error = error\n",
        ),
    ),
)
