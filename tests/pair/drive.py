"""One process of clients: sends its part of the arrivals to one address, each at its time whatever came of the others.

Reads a job from standard input, says `ready`, reads the instant at which to begin, and writes a line of JSON a request.
When requests come is in arrivals.py, what is made of the answers in figures.py.
"""

import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from time import monotonic

import aiohttp
import orjson
import uvloop
from pair.arrivals import Arrival, Step, arrivals
from pair.talk import messages

from proxy.lab.loadcall import Answer, Shape, Target, call, open_session, sample_of
from proxy.lab.prompts import PromptKind
from proxy.tasks import end, spawn

UNFINISHED = "unfinished"
"""The error of an answer that had not ended when the time for the last ones was over."""


@dataclass(frozen=True, slots=True)
class Job:
    """What one process of `parts` sends: every request whose index leaves its `part`, to `url`. No engine has cached a
    prompt of another `nonce`."""

    url: str
    model: str
    steps: tuple[Step, ...]
    tokens: int
    seed: int
    turns: int
    nonce: str
    prompts: PromptKind
    drain_s: float
    part: int
    parts: int

    def mine(self) -> list[Arrival]:
        """The requests of this process."""
        return [
            one
            for one in arrivals(self.steps, self.tokens, self.seed, self.turns)
            if one.index % self.parts == self.part
        ]

    def last_s(self) -> float:
        """When the last answer has to be there, after the beginning."""
        return sum(step.seconds for step in self.steps) + self.drain_s


def read(line: str) -> Job:
    """A job as it was written by `asdict`."""
    given = json.loads(line)
    given["steps"] = tuple(Step(*step) for step in given["steps"])
    return Job(**given | {"prompts": PromptKind(given["prompts"])})


class Clients:
    """The requests of one job. Lines of those that have ended are in `lines`."""

    def __init__(self, job: Job, session: aiohttp.ClientSession) -> None:
        self.lines: list[bytes] = []
        self._job = job
        self._session = session
        self._target = Target(job.url, job.model)

    async def send_all(self, begin_s: float) -> None:
        """Send everything and wait for the answers, or for as long as there is time for them. Awaits."""
        tasks = []
        for one in self._job.mine():
            await asyncio.sleep(max(0.0, begin_s + one.at_s - monotonic()))  # sleeps: arrivals have times of their own
            tasks.append(spawn(self._send(one, begin_s), name=f"client-{one.index}"))
        if tasks:
            await asyncio.wait(tasks, timeout=max(0.0, begin_s + self._job.last_s() - monotonic()))
        await end(*tasks)

    async def _send(self, one: Arrival, begin_s: float) -> None:
        job, answer, sent_at_s = self._job, Answer(stream=True), monotonic()
        # Temperature 0 and no end before the limit: both instances then do the same work.
        shape = Shape(one.tokens, timeout_s=job.last_s(), more={"temperature": 0, "ignore_eos": True})
        try:
            said = messages(job.prompts, job.seed, job.nonce, job.turns, one)
            sample = await call(self._session, self._target, shape, said, answer=answer)
        except asyncio.CancelledError:
            sample = sample_of(answer, sent_at_s, monotonic(), error=UNFINISHED)
        late_s = sent_at_s - begin_s - one.at_s
        self.lines.append(orjson.dumps(one._asdict() | {"late_s": late_s, "begin_s": begin_s} | asdict(sample)))


async def _main() -> None:
    loop = asyncio.get_running_loop()
    job = read(await loop.run_in_executor(None, sys.stdin.readline))
    job.mine()
    async with open_session() as session:
        clients = Clients(job, session)
        print("ready", flush=True)
        await clients.send_all(float(await loop.run_in_executor(None, sys.stdin.readline)))
    sys.stdout.write("".join(line.decode() + "\n" for line in clients.lines))
    sys.stdout.flush()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main())
