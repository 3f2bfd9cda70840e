"""Recorded traffic: files as the Azure and the Mooncake traces have them. It is stretched in time to the rate asked.

A row of the one form is TIMESTAMP,ContextTokens,GeneratedTokens; of the other JSON with timestamp (milliseconds),
input_length, output_length and hash_ids, one for each 512 tokens of the prompt.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import TextIO

import orjson

from proxy.errors import ConfigError
from proxy.lab.simulation.arrivals import Means, Offer, Source, open_source

# No engine takes more tokens of one request: beyond, a number is a mistake that would be simulated for hours. Instants
# are those since 1970, or since the trace began, up to the year 2100: what lies far apart is of two clocks.
MAX_TOKENS, MAX_AT_S = 10_000_000, 4_102_444_800.0
# A prompt of a million tokens has a line of some 16,000 characters; a file without line ends is another one, and must
# not fill the memory.
MAX_LINE_CHARS = 1 << 20

_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_MEND = "mend: a CSV with the columns TIMESTAMP,ContextTokens,GeneratedTokens, or JSONL as Mooncake's traces have it"


@dataclass(frozen=True, slots=True)
class Trace:
    """Recorded requests, at least two at different times, in the order of coming; times begin at 0. A seed begins
    somewhere among them and goes round, so that several seeds tell how much the beginning matters."""

    name: str
    rows: tuple[Offer, ...]
    paced = True
    load = None

    @property
    def span_s(self) -> float:
        """From the first request to the last, and one mean gap."""
        return self.rows[-1].at_s * len(self.rows) / (len(self.rows) - 1)

    @property
    def means(self) -> Means:
        """As `Arrivals.means`; a prompt's blocks that came before are taken to be held."""
        count, seen, prompts = len(self.rows), set[int](), 0
        for row in self.rows:
            held = next((at for at, block in enumerate(row.blocks) if block not in seen), len(row.blocks))
            prompts += max(1, row.prompt_tokens - 512 * held)
            seen.update(row.blocks)
        output = sum(row.tokens for row in self.rows)
        context = sum(row.tokens * (row.prompt_tokens + row.tokens / 2) for row in self.rows)
        return Means(prompts / count, output / count, context / output)

    def source(self, rate_per_s: float, seed: int) -> Source:
        """As `Arrivals.source`; it goes round for ever."""
        return open_source(self._offers(rate_per_s, Random(seed)))

    def _offers(self, rate_per_s: float, rng: Random) -> Iterator[Offer]:
        stretch = len(self.rows) / (rate_per_s * self.span_s)
        place = rng.randrange(len(self.rows))
        began_s = self.rows[place].at_s
        while True:
            for row in self.rows[place:]:
                at_s = (row.at_s - began_s) * stretch
                yield Offer(at_s, row.prompt_tokens, row.tokens, rng.random(), row.blocks)
            place, began_s = 0, began_s - self.span_s


def read_trace(path: Path) -> Trace:
    """The trace in a file. Raises `ConfigError` that names the file, the line and the mend."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = _lines(path, file)
            rows = list(_mooncake(path, lines) if path.suffix == ".jsonl" else _azure(path, lines))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); {_MEND}") from error
    rows.sort(key=lambda row: row.at_s)
    if len(rows) < 2 or rows[0].at_s == rows[-1].at_s:
        raise ConfigError(f"{path}: has no two requests at different times; {_MEND}")
    first_s = rows[0].at_s
    return Trace(path.stem, tuple(row._replace(at_s=row.at_s - first_s) for row in rows))


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_CHARS + 1), ""), 1):
        if len(line) > MAX_LINE_CHARS:
            raise ConfigError(f"{path}:{number}: no request (longer than {MAX_LINE_CHARS} characters); {_MEND}")
        yield line


def _azure(path: Path, lines: Iterator[str]) -> Iterator[Offer]:
    table = csv.DictReader(lines)
    try:
        for row in table:
            at, prompt, output = (row[column] for column in _AZURE)
            # Seven digits of a second are written there, one more than an instant can have.
            at_s = datetime.fromisoformat(at[:26]).timestamp()
            yield from _offer(at_s, int(prompt), int(output))
    except (KeyError, TypeError, *_WRONG) as error:
        line = table.line_num + isinstance(error, csv.Error)  # which comes before the line is counted
        raise ConfigError(f"{path}:{line}: no request ({_told(error)}); {_MEND}") from error


def _mooncake(path: Path, lines: Iterator[str]) -> Iterator[Offer]:
    for number, line in enumerate(lines, 1):
        try:
            row = orjson.loads(line)
            blocks = tuple(int(block) for block in row.get("hash_ids", ()))
            # The last block is seldom whole, and what is not whole is not held.
            whole = blocks[: int(row["input_length"]) // 512]
            yield from _offer(row["timestamp"] / 1000.0, int(row["input_length"]), int(row["output_length"]), whole)
        except (AttributeError, KeyError, TypeError, *_WRONG) as error:
            raise ConfigError(f"{path}:{number}: no request ({_told(error)}); {_MEND}") from error


# Years that no instant has, numbers beyond any range, and fields of a CSV that are longer than any.
_WRONG = (ValueError, OverflowError, OSError, csv.Error)


def _told(error: Exception) -> str:
    """What is wrong, and no more of a file that may be anything."""
    return repr(error)[:200]


def _offer(at_s: float, prompt: int, output: int, blocks: tuple[int, ...] = ()) -> Iterator[Offer]:
    """A request; one that generates nothing takes no place in a batch and is left out."""
    if not (0 <= prompt <= MAX_TOKENS and 0 <= output <= MAX_TOKENS):
        raise ValueError(f"tokens are 0 to {MAX_TOKENS}")
    if not 0.0 <= at_s <= MAX_AT_S:
        raise ValueError("its time is not between the years 1970 and 2100")
    if output:
        yield Offer(at_s, prompt, output, 0.0, blocks)
