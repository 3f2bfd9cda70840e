"""A small mutator for the quick run: the same seed makes the same inputs on every machine and Python.

Not here: following coverage, which is the long run's (campaign.py).
"""

import random
from collections.abc import Iterator, Sequence

# Steps that make one input out of a seed; more would leave little of it.
MAX_STEPS = 6
# Most bytes that one step copies or removes.
MAX_RUN_BYTES = 40


def mutated(seeds: Sequence[bytes], words: Sequence[bytes], count: int, salt: str) -> Iterator[bytes]:
    """`count` inputs made out of seeds and words; the same for the same arguments."""
    chance = random.Random(f"{salt} {count}")
    seeds = seeds or [b""]
    for _ in range(count):
        text = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, MAX_STEPS)):
            chance.choice(STEPS)(text, chance, seeds, words)
        yield bytes(text)


def _flip(text: bytearray, chance: random.Random, *_: object) -> None:
    if text:
        text[chance.randrange(len(text))] ^= 1 << chance.randrange(8)


def _set(text: bytearray, chance: random.Random, *_: object) -> None:
    if text:
        text[chance.randrange(len(text))] = chance.randrange(256)


def _cut(text: bytearray, chance: random.Random, *_: object) -> None:
    at = chance.randint(0, len(text))
    del text[at : at + chance.randint(1, MAX_RUN_BYTES)]


def _repeat(text: bytearray, chance: random.Random, *_: object) -> None:
    at, size = chance.randint(0, len(text)), chance.randint(1, MAX_RUN_BYTES)
    text[at:at] = text[at : at + size] * chance.randint(1, 3)


def _insert(text: bytearray, chance: random.Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> None:
    at = chance.randint(0, len(text))
    text[at:at] = chance.choice(words) if words else bytes([chance.randrange(256)])


def _cross(text: bytearray, chance: random.Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> None:
    other = chance.choice(seeds)
    text[chance.randint(0, len(text)) :] = other[chance.randint(0, len(other)) :]


STEPS = (_flip, _set, _cut, _repeat, _insert, _insert, _cross)
