"""Plays requests at their instants on the sockets of a proxy, whatever becomes of the others. Where they come from is
in life_scene.py."""

import asyncio
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import aiohttp
from bench.life_scene import Outcome, body

from proxy.lab.loadcall import Answer, open_session
from proxy.lab.simulation.arrivals import Offer
from proxy.model import Role
from proxy.tasks import spawn

PATH = "/v1/chat/completions"


class Unlike(Exception):
    """A request had not the answer that it asked for, so that nothing can be compared."""


class Played(NamedTuple):
    """What came, and by how much requests were sent too late (seconds, the worst of a hundred)."""

    outcome: Outcome
    late_p99_s: float


class _Seen(NamedTuple):
    role: str
    late_s: float
    e2e_s: float
    ttft_s: float


async def play(url: str, offers: Sequence[Offer]) -> Played:
    """Send all, each at its instant, and wait for the last answer. Raises Unlike."""
    loop = asyncio.get_running_loop()
    async with open_session() as session:
        began_s = loop.time()
        asked: list[asyncio.Task[_Seen]] = []
        all_sent = asyncio.Event()

        def send(number: int, offer: Offer) -> None:
            asked.append(spawn(_ask(session, url, number, offer, began_s), name=f"life {number}"))
            if len(asked) == len(offers):
                all_sent.set()

        due = [loop.call_at(began_s + offer.at_s, send, number, offer) for number, offer in enumerate(offers)]
        try:
            await all_sent.wait()
        finally:
            for each in due:
                each.cancel()
        seen = await asyncio.gather(*asked)
    share = sum(one.role == Role.SPECULATIVE for one in seen) / len(seen)
    late = sorted(one.late_s for one in seen)
    outcome = Outcome(share, fmean(one.e2e_s for one in seen), fmean(one.ttft_s for one in seen))
    return Played(outcome, late[round(0.99 * (len(late) - 1))])


async def _ask(session: aiohttp.ClientSession, url: str, number: int, offer: Offer, began_s: float) -> _Seen:
    clock, answer = asyncio.get_running_loop().time, Answer(stream=True)
    sent_at_s = clock()
    asked = body(number, offer.prompt_tokens, offer.tokens)
    async with session.post(f"{url}{PATH}", data=asked, headers={"content-type": "application/json"}) as response:
        async for piece in response.content.iter_any():
            answer.feed(piece, clock())
    ended_at_s, role = clock(), response.headers.get("x-crossover-backend", "")
    answer.close()
    if answer.error or (answer.prompt_tokens, answer.completion_tokens) != (offer.prompt_tokens, offer.tokens):
        raise Unlike(
            f"{number}: {offer}, and got {response.status} {answer.error} of {answer.completion_tokens} tokens"
        )
    # From the instant at which it was due: a sender that is late must not hide what its requests wait for.
    due_s, first_at_s = began_s + offer.at_s, answer.first_at_s or ended_at_s
    return _Seen(role, sent_at_s - due_s, ended_at_s - due_s, first_at_s - due_s)
