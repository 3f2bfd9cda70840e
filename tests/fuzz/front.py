"""Raw bytes at the clients' port: the engine gets no request that a strict reader would not have found in them.

Byte 0 chooses the cuts, byte 1 how the client ends; the rest is what it sends.
"""

import orjson
from fuzz.draws import Draws, require
from fuzz.house import House, house
from fuzz.http_reader import Malformed, Request, Response, read_requests, read_responses, values
from fuzz.pipes import Pipe

# Longer than any timer that a client's bytes can start.
ALL_TIMERS_S = 700.0
# Longer than a peek into a stream that pauses.
PEEKED_S = 0.2
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nX-Engine: 1\r\n\r\n{}"
HEAD_ANSWER = ANSWER[:-2]
NORMAL = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\n\r\n" + b'{"prompt": "a"}'
ONE_HOP = {b"transfer-encoding", b"te", b"trailer", b"upgrade", b"keep-alive", b"proxy-connection", b"expect"}


def front(data: bytes) -> None:
    """The engine's requests are the client's, every answer is valid HTTP, and all is well afterwards."""
    draws = Draws(data)
    cut, ending, sent = draws.byte(), draws.byte() % 4, draws.rest()

    async def scenario(home: House) -> None:
        home.engine.reply = _reply
        pipe = await _send(home, sent, cut, ending)
        _require_honest(home, sent, bytes(pipe.written), closed=pipe.ended)
        await _require_well(home)

    house().run(scenario)


def _reply(request: Request, pipe: Pipe) -> None:
    pipe.give(HEAD_ANSWER if request.method == b"HEAD" else ANSWER)


async def _send(home: House, sent: bytes, cut: int, ending: int) -> Pipe:
    """Send in pieces, with everybody's turn between them, and end: at once, after the answers, or after all timers."""
    pipe = home.connect()
    size = cut or len(sent) or 1
    for at in range(0, len(sent), size):
        pipe.give(sent[at : at + size])
        if cut % 2:
            await home.moment()
    if ending:
        await home.wait((PEEKED_S, PEEKED_S, ALL_TIMERS_S)[ending - 1])
    pipe.end()
    await home.wait(PEEKED_S)
    return pipe


def _require_honest(home: House, sent: bytes, written: bytes, *, closed: bool) -> None:
    found, _ = read_requests(sent)
    require(not home.engine.broken, f"the engine got what is no request: {home.engine.broken}")
    left = iter(found)
    for request in home.engine.requests:
        known = any(_same(one, request) for one in left)
        require(known, f"the engine got {request.method!r} {request.target!r}, which the client did not send")
        names = [name.lower() for name, _ in request.fields]
        require(names.count(b"host") == 1 and names.count(b"content-length") <= 1, f"framed twice: {request.fields}")
        require(not ONE_HOP.intersection(names), f"a header of one connection passed: {request.fields}")
    try:
        answers, methods = _answers(written, [request.method for request in found], closed=closed)
    except Malformed as error:
        require(False, f"the client got what is no answer: {error}: {written!r}")
        return
    require(len(answers) <= len(found) + 1, f"{len(answers)} answers to {len(found)} requests and what came after")
    for number, one in enumerate(answers):
        _require_ours(one, methods[number] if number < len(methods) else b"")


def _answers(written: bytes, methods: list[bytes], *, closed: bool) -> tuple[list[Response], list[bytes]]:
    """The answers, and the methods they answer; that to what is no request at all is one to a HEAD where its first word
    says so."""
    answers = read_responses(written, methods, closed=closed)
    if len(answers) == len(methods) + 1 and not answers[-1].whole:
        methods = [*methods, b"HEAD"]
        answers = read_responses(written, methods, closed=closed)
    return answers, methods


def _same(sent: Request, came: Request) -> bool:
    asked = b"GET" if sent.method == b"HEAD" else sent.method  # engines know no HEAD, and are asked the whole question
    return (asked, sent.target, sent.body) == (came.method, came.target, came.body)


def _require_ours(one: Response, method: bytes) -> None:
    """Whole, and where it is an error of ours, in our shape."""
    require(one.whole, f"an answer that is not whole: {one}")
    if one.status < 400 or method == b"HEAD" or values(one.fields, b"x-engine"):
        return
    try:
        told = orjson.loads(one.body)
    except ValueError:
        require(False, f"an error that is no JSON: {one}")
        return
    ours = values(one.fields, b"server") == [b"crossover"]
    require(ours and isinstance(told, dict) and ("error" in told or "status" in told), f"an error not of ours: {one}")


async def _require_well(home: House) -> None:
    """Nothing is leased, nobody has complained, and a normal request is served."""
    require(not home.app.relay.trips, "a request is still under way after its client has left")
    require(home.app.desk.snapshot().in_flight == 0, "something is in flight after the client has left")
    require(not home.complaints, f"the loop complained: {home.complaints}")
    pipe = home.connect()
    pipe.give(NORMAL)
    await home.moment()
    answers = read_responses(bytes(pipe.written), [b"POST"], closed=pipe.ended)
    require([one.status for one in answers] == [200], f"a normal request is not served any more: {answers}")
    pipe.end()
    await home.moment()
