"""The faults that mutants.py plants: each is one that a router, gateway or proxy has had, as a change of a few lines.
Those that only a path without a coroutine for each chunk can have are in mutants_path.py.

A change names text that is in its file exactly once; tests/test_scripts_mutants.py says when one no longer is.
"""

from mutants_path import PATH_MUTANTS
from mutants_terms import mutant

MUTANTS = (
    mutant(
        "release-twice",
        "a settled lease lowers the count twice",
        "accounting leaks",
        (
            "proxy/state/ledger.py",
            "        self.in_flight -= lease.weight - stays\n",
            "        self.in_flight -= 2 * (lease.weight - stays)\n",
        ),
    ),
    mutant(
        "release-never",
        "a request whose client left stays counted",
        "disconnects leaks",
        (
            "proxy/trip.py",
            "        if assignment is not None:\n            self._desk.settle(",
            '        if assignment is not None and not self._outcome.startswith("client_gone"):\n            self._desk.settle(',
        ),
    ),
    mutant(
        "count-at-headers",
        "a request counts from its answer's head on, not from the decision",
        "herd accounting",
        ("proxy/state/ledger.py", "        book.in_flight += weight\n", ""),
        (
            "proxy/trip.py",
            "        self._passage = passage\n",
            "        self._passage = passage\n        self._assignment.lease.book.in_flight += self._assignment.lease.weight\n",
        ),
    ),
    mutant(
        "count-requests",
        "a request of n sequences counts as one",
        "accounting",
        (
            "proxy/dispatch/desk.py",
            "        lease = self.ledger.open(backend.book, weight)\n",
            "        lease = self.ledger.open(backend.book, 1)\n",
        ),
    ),
    mutant(
        "retry-after-commit",
        "a stream that breaks is made again on the other backend",
        "retries truncation",
        (
            "proxy/trip.py",
            "        await passage.run(self._request, self._stamps())\n",
            "        await passage.run(self._request, self._stamps())\n        if passage.error is not None:\n            again = await self._attempt(self._means.pair.line(self._desk.backends[1]))\n            while isinstance(again, Opened) and (data := await again.answer.read()):\n                passage._out.write(data)\n",
        ),
    ),
    mutant(
        "retry-without-budget",
        "every failure is tried again, whatever the budget says",
        "retries",
        (
            "proxy/dispatch/desk.py",
            "        if left is None:\n            return False\n",
            "        if left is None:\n            return True\n",
        ),
    ),
    mutant(
        "retry-same-backend",
        "the second attempt goes to the backend that failed",
        "retries dead_engines",
        (
            "proxy/routing/policy.py",
            "(excluded.other if _takes(rules, snapshot, excluded.other, traits.weight) else None), _FAILOVER",
            "(excluded if _takes(rules, snapshot, excluded, traits.weight) else None), _FAILOVER",
        ),
    ),
    mutant(
        "breaker-counts-4xx",
        "an engine's refusal of a wrong request counts as its failure",
        "breaker",
        (
            "proxy/trip.py",
            "SUCCESS if passage.opened.verdict is GOOD else Event.NEUTRAL",
            "SUCCESS if passage.opened.verdict is GOOD else Event.FAILURE",
        ),
    ),
    mutant(
        "breaker-counts-busy",
        "an engine that says it is busy counts as failing",
        "busy_engines",
        (
            "proxy/trip.py",
            'BackendBusy("the backend\'s queue is full"), Event.NEUTRAL,',
            'BackendBusy("the backend\'s queue is full"), Event.FAILURE, certain=True,',
        ),
    ),
    mutant(
        "probe-never-freed",
        "a probe that says nothing holds a half-open circuit for ever",
        "breaker",
        (
            "proxy/routing/breaker.py",
            "    (_HALF, Event.NEUTRAL): Row(_keep, _free),\n",
            "    (_HALF, Event.NEUTRAL): Row(_keep, _keep),\n",
        ),
        (
            "proxy/routing/breaker.py",
            "    return tuple(expiry_s for expiry_s in circuit.probes if expiry_s > now_s)\n",
            "    return circuit.probes\n",
        ),
    ),
    mutant(
        "write-without-drain",
        "what an engine sends is taken whether its client reads or not",
        "flow/test_flow_streams",
        (
            "proxy/wire/passage.py",
            "        self.opened.answer.pause()\n",
            "",
        ),
    ),
    mutant(
        "burst-together",
        "events are gathered before they are passed on",
        "framing",
        (
            "proxy/wire/passage.py",
            "hold.feed(payload)\n",
            'hold.feed(payload)\n            ready = getattr(self, "_late", b"") + ready\n            ready, self._late = (ready, b"") if len(ready) > 4096 or scanner.finished else (b"", ready)\n',
        ),
        ("proxy/wire/passage.py", '        "_last_s",\n', '        "_last_s",\n        "_late",\n'),
    ),
    mutant(
        "invented-end",
        "a broken stream is ended with [DONE]",
        "truncation",
        (
            "proxy/wire/passage.py",
            "        self._out.cut(told=told)\n",
            '        self._out.write(b"data: [DONE]\\n\\n")\n        self._out.end()\n',
        ),
    ),
    mutant(
        "truncation-unnoticed",
        "a stream without its end passes for whole",
        "truncation",
        (
            "proxy/wire/passage.py",
            '        return StreamCut("the backend ended its stream before the answer was complete")\n',
            "        return None\n",
        ),
    ),
    mutant(
        "client-gone-unnoticed",
        "a client that leaves before its answer is not noticed",
        "disconnects",
        ("proxy/wire/client.py", "task.cancel()\n", "task\n"),
    ),
    mutant(
        "stale-look",
        "decisions are made on numbers of the last second",
        "herd",
        (
            "proxy/dispatch/desk.py",
            "            snapshot = self._seen(now_s)\n            for role in promised:\n",
            '            snapshot = self.__dict__.setdefault("_old", self._seen(now_s))\n            if now_s - snapshot.at_s > 1:\n                snapshot = self._old = self._seen(now_s)\n            for role in promised:\n',
        ),
        (
            "proxy/dispatch/desk.py",
            "if failed is None and not promised else None\n",
            "if False else None\n",
        ),
    ),
    mutant(
        "no-dwell",
        "the regime may change at any moment",
        "flapping",
        (
            "proxy/routing/threshold.py",
            "        if due and now_s - since_s >= rules.min_dwell_s:\n",
            "        if due:\n",
        ),
    ),
    mutant(
        "one-miss-is-down",
        "a single missed probe takes a backend out",
        "health_pages",
        ("proxy/routing/health.py", "misses >= rules.max_misses)):", "misses >= 1)):"),
    ),
    mutant(
        "silent-chosen",
        "a backend that gives no sign of life is chosen until it counts as down",
        "dead_engines",
        ("proxy/routing/silence.py", "    return snapshot.of(role).silent and ", "    return False and "),
    ),
    mutant(
        "stuck-stays",
        "what waits on an engine that goes down without a word is left there",
        "dead_engines",
        ("proxy/relay.py", "                wait.forsake()\n", "                pass\n"),
    ),
    mutant(
        "busy-robbed",
        "whatever is down loses what waits there, though it goes on with it",
        "flow/test_flow_standstill_stays",
        (
            "proxy/routing/silence.py",
            "    return health.up is False and enough and ",
            "    return health.up is False or enough and ",
        ),
    ),
    mutant(
        "hop-by-hop-passed",
        "headers that Connection names go upstream",
        "headers",
        (
            "proxy/protocol/headers.py",
            "            del pieces[4:]\n            return _add_kept(pieces, _without_named(fields), keys_pass=keys_pass)\n",
            "            pass\n",
        ),
    ),
    mutant(
        "both-keys",
        "the client's key goes upstream beside the engine's",
        "headers",
        ("proxy/protocol/headers.py", "keys_pass=not (api_key or drop_client_key))", "keys_pass=True)"),
    ),
    mutant(
        "hidden-total-limit",
        "an answer may take a second in all",
        "timeouts",
        (
            "proxy/wire/calls.py",
            "        if answer is not None:\n            return answer\n",
            '        if answer is not None:\n            late = lambda: connection._answer is answer and connection._fail("the answer took too long")\n            loop.call_at(sent_at_s + 1, late)\n            return answer\n',
        ),
    ),
    mutant(
        "unpacked-with-label",
        "compressed answers are unpacked and keep their label",
        "bodies",
        (
            "proxy/wire/passage.py",
            "    def _push(self, framed: bytes, payload: bytes, *, scanned: bool = False) -> None:\n",
            '    def _push(self, framed: bytes, payload: bytes, *, scanned: bool = False) -> None:\n        if (b"gzip" in dict(self.opened.answer.fields).values()):\n            self._unpacker = getattr(self, "_unpacker", None) or __import__("zlib").decompressobj(47)\n            framed, payload = b"", self._unpacker.decompress(payload)\n',
        ),
        ("proxy/wire/passage.py", '        "_scanner",\n', '        "_scanner",\n        "_unpacker",\n'),
    ),
    mutant(
        "redirects-followed",
        "an engine's redirect is followed by the proxy",
        "headers",
        (
            "proxy/wire/calls.py",
            "        if answer is not None:\n            return answer\n",
            '        if answer is not None and answer.status in (301, 302, 303, 307, 308):\n            answer.close()\n            there = dict(answer.fields).get(b"location", b"/").decode()\n            where = urlsplit(there if there.startswith("http") else f"http://{self._host}:{self._port}{there}")\n            words = call.head.split(b" ", 2)\n            head = b" ".join((words[0], where.path.encode(), words[2]))\n            upstream = Upstream(where.geturl(), connect_s=self._connect_s)\n            return await upstream.send(Call(call.method, head, call.body), fresh=True)\n        if answer is not None:\n            return answer\n',
        ),
    ),
    mutant(
        "environment-proxy",
        "the environment's proxy stands between proxy and engines",
        "environment",
        (
            "proxy/wire/calls.py",
            "        parts = urlsplit(url)\n",
            "        from urllib.request import getproxies, proxy_bypass\n\n        parts = urlsplit(url)\n        if not proxy_bypass(parts.netloc):\n            parts = urlsplit(getproxies().get(parts.scheme, url))\n",
        ),
    ),
    mutant(
        "reload-forgets",
        "a backend that a reload brings back begins at zero",
        "accounting lifecycle",
        (
            "proxy/state/ledger.py",
            "        book = next((each for each in self._retired if each.name == name), None)\n",
            "        book = None\n",
        ),
    ),
    mutant(
        "waiter-started-for-nobody",
        "a request whose client left the queue is started",
        "herd",
        (
            "proxy/wire/admission.py",
            "            if place.done() and not place.cancelled() and place.exception() is None:\n                self._desk.take_back(place.result())\n",
            "            if place.done() and not place.cancelled() and place.exception() is None:\n",
        ),
    ),
    mutant(
        "drain-cuts",
        "a stop ends running streams at once",
        "lifecycle",
        ("proxy/app.py", "self.desk.clock() + timeouts.drain_s\n", "self.desk.clock()\n"),
    ),
    mutant(
        "error-reshaped",
        "an engine's error body is replaced by one of ours",
        "errors",
        (
            "proxy/trip.py",
            "            if trouble.answer.scanner is None or trouble.answer.verdict is FAILED:\n",
            "            if False:\n",
        ),
    ),
    mutant(
        "path-as-label",
        "metrics are labelled by what the client wrote",
        "metrics",
        (
            "proxy/door.py",
            "        self._metrics.refused(error.code)\n",
            "        self._metrics._refusals.add((request.target,))\n",
        ),
    ),
    mutant(
        "path-in-the-log",
        "refused requests are logged with their path",
        "logs",
        (
            "proxy/door.py",
            '"status": error.status, "code": error.code}\n',
            '"status": error.status, "code": error.code}\n        said["path"] = request.target\n',
        ),
    ),
    *PATH_MUTANTS,
)
