"""What one request of a storm is to be: drawn whole from chance before it is sent, so that a seed draws it again.

Doing it is not here: the engines' part is in fates.py, the client's in clients.py.
"""

import random
from dataclasses import dataclass

import orjson
from fakes.dialects import SAMPLES, Sample

from proxy.model import Dialect

# What becomes of an attempt at an engine, and how often. The first rows are answers, the rest are faults.
FATES = {
    "finish": 46,
    "drip": 6,
    "late_head": 5,
    "comments": 2,
    "reject": 4,
    "fail": 4,
    "busy": 4,
    "refuse": 3,
    "mid_error": 2,
    "reset_before": 3,
    "reset_in_head": 2,
    "reset_in_stream": 3,
    "fin_in_stream": 2,
    "silence": 2,
    "silence_in_stream": 2,
    "garbage": 2,
    "huge_head": 1,
    "broken_chunks": 2,
    "truncated": 2,
    "no_end": 2,
    "trailing": 3,
}
GOOD = ("finish", "drip", "late_head", "comments", "trailing")
# A request that failed once meets a good engine more often than not: failovers should also succeed.
SECOND_GOOD = 0.6

CONDUCTS = {
    "stay": 76,
    "slow": 3,
    "asleep": 1,
    "leave_uploading": 3,
    "leave_early": 5,
    "leave_before_head": 4,
    "leave_in_stream": 5,
    "half_read": 3,
}
WEIGHTS = {1: 80, 2: 8, 3: 5, 4: 3, 7: 3, 40: 1}
PIECES = {3: 70, 6: 20, 24: 10}
EMBEDDINGS = Sample(Dialect.PLAIN, "/v1/embeddings", b'{"model":"m","input":["hi"]}', (), b"")
# The proxy's patience with an engine that says nothing (`timeouts.first_byte_s`): so small that a minute has many.
FIRST_BYTE_S = 1.0
ROLES = ("speculative", "baseline")


@dataclass(frozen=True, slots=True)
class Plan:
    """One request. `weight` is in sequences as it asks for them; `fates` are those of its attempts in their order;
    `moment` (0 to 1) says when things of its own happen."""

    id: str
    sample: Sample
    stream: bool
    weight: int
    fates: tuple[str, ...]
    pieces: int
    pad_bytes: int
    conduct: str
    by_reset: bool
    moment: float
    asked: str | None
    body: bytes

    @property
    def calm(self) -> bool:
        """Whether nothing is to go wrong with it by itself."""
        return self.fates[0] == "finish" and self.conduct == "stay" and self.weight == 1 and self.asked is None

    def fate(self, number: int) -> str:
        return self.fates[min(number, len(self.fates) - 1)]


def picked(chance: random.Random, table: dict[str, int]) -> str:
    return chance.choices(list(table), list(table.values()))[0]


def draw(chance: random.Random, request_id: str, *, conduct: str | None = None) -> Plan:
    """The next request of a storm."""
    sample = chance.choice((*SAMPLES, EMBEDDINGS))
    stream = sample is not EMBEDDINGS and chance.random() < 0.75
    weight = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    if sample.dialect in (Dialect.RESPONSES, Dialect.MESSAGES, Dialect.OLLAMA):
        weight = 1
    fates = (picked(chance, FATES), *(_second(chance) for _ in range(3)))
    drawn = picked(chance, CONDUCTS)
    conduct = conduct or drawn
    pad_bytes = chance.choice((0, 0, 0, 10, 900))
    if conduct in ("slow", "asleep"):
        pad_bytes = 40_000
    filler = "." * chance.choice((0, 0, 0, 200, 150_000 if chance.random() < 0.2 else 0))
    return Plan(
        id=request_id,
        sample=sample,
        stream=stream,
        weight=weight,
        fates=fates,
        pieces=chance.choices(list(PIECES), list(PIECES.values()))[0],
        pad_bytes=pad_bytes,
        conduct=conduct,
        by_reset=chance.random() < 0.5,
        moment=chance.random(),
        asked=chance.choice(ROLES) if chance.random() < 0.05 else None,
        body=_body(sample, stream=stream, weight=weight, filler=filler),
    )


def _second(chance: random.Random) -> str:
    return "finish" if chance.random() < SECOND_GOOD else picked(chance, FATES)


def _body(sample: Sample, *, stream: bool, weight: int, filler: str) -> bytes:
    value = orjson.loads(sample.body)
    if sample is not EMBEDDINGS:
        value["stream"] = stream
    if sample is EMBEDDINGS:
        value["input"] = ["hi"] * weight
    elif sample.dialect is Dialect.GENERATE:
        value["sampling_params"] = {"n": weight}
    elif sample.dialect is Dialect.COMPLETIONS and weight % 2 == 0:
        value |= {"prompt": ["a", "b"], "n": weight // 2}
    elif weight > 1:
        value["n"] = weight
    if filler:
        value["user"] = filler
    return orjson.dumps(value)
