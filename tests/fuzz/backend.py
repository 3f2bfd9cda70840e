"""Raw bytes as an engine's answer: the client gets valid HTTP, never a broken answer as a whole one, and no bytes that
the engine did not send.

Byte 0 chooses the request, byte 1 the cuts, byte 2 how the engine ends and how quick both sides are; the rest is what
it answers.
"""

import asyncio
import re
from dataclasses import dataclass, field

from fuzz.draws import Draws, PropertyBroken, require
from fuzz.house import House, house
from fuzz.http_reader import Malformed, Request, Response, read_responses, values
from fuzz.pipes import TAKEN_WITHIN_S, Pipe

ALL_TIMERS_S = 2000.0
PEEKED_S = 0.2
# From one piece of an answer to the next: a slow client is not done with the one before.
PIECE_S = TAKEN_WITHIN_S / 2
STREAM = b'{"model":"m","stream":true,"prompt":"a","messages":[{"role":"user","content":"a"}]}'
PLAIN = b'{"model":"m","stream":false,"prompt":"a","messages":[{"role":"user","content":"a"}]}'
ASKS = (
    (b"POST", b"/v1/chat/completions", STREAM),
    (b"POST", b"/v1/chat/completions", PLAIN),
    (b"POST", b"/v1/completions", STREAM),
    (b"POST", b"/v1/messages", STREAM),
    (b"POST", b"/v1/responses", STREAM),
    (b"POST", b"/generate", STREAM),
    (b"POST", b"/api/chat", STREAM),
    (b"POST", b"/v1/embeddings", PLAIN),
    (b"GET", b"/v1/models", b""),
    (b"HEAD", b"/v1/models", b""),
    (b"GET", b"/server_info", b""),
    (b"POST", b"/tokenize", PLAIN),
)
# Of their streams it is plain to see whether they have ended.
SAID = re.compile(rb'\[DONE\]|error|"finish_reason"\s*:\s*[^n\s]')
# The last words of the dialects: what breaks behind them has cut nothing short.
LAST_WORDS = re.compile(
    rb'data: ?\[DONE\]|response\.(completed|incomplete|failed)"|message_stop"|"done" ?: ?true|"finish_reason" ?: ?\{'
)
ENDED_BY_DONE = (b"/v1/chat/completions", b"/v1/completions")
GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\ngood"


@dataclass
class Script:
    """What the engine does with each request: `said` in pieces of `size` (0: one), then what `ending` says."""

    said: bytes
    size: int
    ending: int
    good_second: bool
    pipes: list[Pipe] = field(default_factory=list)

    def reply(self, _: Request, pipe: Pipe) -> None:
        self.pipes.append(pipe)
        if self.good_second and len(self.pipes) > 1:
            pipe.give(GOOD)
            return
        size = self.size or len(self.said) or 1
        pieces = [self.said[at : at + size] for at in range(0, len(self.said), size)]
        if self.ending & 16:
            self._give_on(pipe, pieces[::-1])
            return
        for piece in pieces:
            pipe.give(piece)
        self._end(pipe)

    def _give_on(self, pipe: Pipe, left: list[bytes]) -> None:
        """One piece after the other, the last of the list first, with everybody's turn between them."""
        if left:
            pipe.give(left.pop())
            asyncio.get_running_loop().call_later(PIECE_S, self._give_on, pipe, left)
        else:
            self._end(pipe)

    def _end(self, pipe: Pipe) -> None:
        if self.ending % 2:
            pipe.end()


def backend(data: bytes) -> None:
    """Whatever an engine answers, the client gets HTTP and honest ends, and nothing stays leased."""
    draws = Draws(data)
    ask, size, ending = draws.one_of(ASKS), draws.byte(), draws.byte()
    script = Script(draws.rest(), size, ending, good_second=bool(ending & 2))

    async def scenario(home: House) -> None:
        home.engine.reply = script.reply
        await _converse(home, ask, script)

    house().run(scenario)


async def _converse(home: House, ask: tuple[bytes, bytes, bytes], script: Script) -> None:
    method, target, body = ask
    pipe = home.connect(slow=bool(script.ending & 8))
    head = b"%b %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (method, target, len(body))
    pipe.give(head + body)
    await home.wait(PEEKED_S)
    if not script.ending & 4:
        await home.wait(ALL_TIMERS_S)
        answers = _require_answer(bytes(pipe.written), method, script, closed=pipe.ended)
        if body is STREAM and target in ENDED_BY_DONE:
            _require_ended(answers)
    pipe.end()
    await home.wait(PEEKED_S)
    require(not home.engine.broken, f"the engine got what is no request: {home.engine.broken}")
    require(len(home.engine.requests) <= 2 + _replays(home), f"{len(home.engine.requests)} attempts for one request")
    require(not home.app.relay.trips, "a request is still under way after its client has left")
    require(home.app.desk.snapshot().in_flight == 0, "something is in flight after the client has left")
    require(not home.complaints, f"the loop complained: {home.complaints}")


def _replays(home: House) -> int:
    """Each of the two attempts may find its kept connection closed once."""
    return 2 if len(home.engine.pipes) > 1 else 0


def _require_ended(answers: list[Response]) -> None:
    """A stream that says neither that it is done nor why not is never called whole."""
    for answer in answers:
        streamed = values(answer.fields, b"content-type") == [b"text/event-stream"]
        if answer.status == 200 and streamed and not values(answer.fields, b"content-encoding"):
            require(
                bool(SAID.search(answer.body)) or not answer.whole,
                f"a stream without its end is called whole: {answer}",
            )


def _require_answer(written: bytes, method: bytes, script: Script, *, closed: bool) -> list[Response]:
    try:
        answers = read_responses(written, [method], closed=closed)
    except Malformed as error:
        raise PropertyBroken(f"the client got what is no answer: {error}: {written!r}") from error
    require(len(answers) == 1 or (closed and not answers), f"{len(answers)} answers to one request: {written!r}")
    for answer in answers:
        require(answer.whole or closed, "an answer that has not ended on a connection that stays open")
        if not _is_ours(answer) and answer.body != b"good":
            _require_true(answer, method, script)
    return answers


def _is_ours(answer: Response) -> bool:
    return answer.status >= 400 and values(answer.fields, b"server") == [b"crossover"]


def _require_true(answer: Response, method: bytes, script: Script) -> None:
    """An answer that came from the engine: its bytes, and whole only where the engine's was."""
    try:
        told = read_responses(script.said, [method], closed=bool(script.ending % 2))
    except Malformed:
        return
    if not told:
        return
    first = told[0]
    require(answer.status == first.status, f"status {answer.status} where the engine said {first.status}")
    if first.whole and b'"error"' not in answer.body:
        require(first.body.startswith(answer.body), f"{answer.body!r} where the engine said {first.body!r}")
        require(not answer.whole or answer.body == first.body, f"cut short and called whole: {answer.body!r}")
        plain = values(first.fields, b"content-type") == [b"application/json"]
        require(answer.whole or not plain, f"the engine's answer is whole, the client's is not: {answer}")
    if not first.whole and not first.until_close and not LAST_WORDS.search(answer.body):
        require(not answer.whole, f"the engine's answer broke off and the client's is whole: {answer}")
