"""The words of a calibration: what is measured where, what came out, and what follows. No arithmetic beyond a line.

A *cell* is one measurement of one arm in one condition. What is measured next is in plan.py, what cells add up to in
findings.py; the verdict itself is routing's (routing/verdict.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from proxy.lab.prompts import PromptKind
from proxy.model import Placement, Role
from proxy.routing.verdict import Contrast, Verdict

CURVES_FILE = "curves.yaml"
"""The name of the file of speeds, beside the configuration unless told otherwise."""


class Arm(StrEnum):
    """Who is measured: the two backends, or an instance that switches its own speculation on and off."""

    SPECULATIVE = "speculative"
    BASELINE = "baseline"
    ADAPTIVE = "adaptive"


class Prefix(StrEnum):
    """Whether the engine's prefix cache knows the prompts already (warm) or never saw their beginning (cold)."""

    WARM = "warm"
    COLD = "cold"


class Ending(StrEnum):
    """Whether answers run to a fixed length, which makes cells comparable, or end where the model ends them."""

    FIXED = "fixed"
    NATURAL = "natural"


class Sweep(StrEnum):
    """Whether concurrency rose or fell from the cell before; a difference between the two shows hysteresis."""

    UP = "up"
    DOWN = "down"


class Source(StrEnum):
    """What the tokens of a cell were counted by, the most exact first."""

    MOMENTS = "moments"  # the engine's decode moments: tokens, step times and batch of each decode step
    USAGE = "usage"  # usage told in every chunk: tokens within the window, as the client saw them
    COUNTER = "counter"  # the engine's counter of generated tokens, read at both ends of the window
    SPREAD = "spread"  # usage at the end of each answer, spread evenly over the time in which it streamed


class Condition(NamedTuple):
    """What is asked of an engine besides how much: one bucket of context, one class of prompts, cache and ending.

    `context_tokens` is the mean context of a sequence while it decodes that the prompts are cut for, in tokens;
    `max_tokens` the output of each answer (its greatest where the ending is natural).
    """

    context_tokens: int
    prompts: PromptKind = PromptKind.MIXED
    prefix: Prefix = Prefix.WARM
    ending: Ending = Ending.FIXED
    max_tokens: int = 256


class Cell(NamedTuple):
    """One measurement to make. `repeat` counts from 0 for the same arm, condition and concurrency."""

    condition: Condition
    concurrency: int
    arm: Arm
    repeat: int
    sweep: Sweep = Sweep.UP


class Span(NamedTuple):
    """How long a cell takes, seconds: load that does not count yet, once all requests decode, then the window."""

    settle_s: float
    window_s: float

    @property
    def total_s(self) -> float:
        """What a cell costs at least; prefill and first tokens come on top."""
        return self.settle_s + self.window_s


class Quantiles(NamedTuple):
    """How values lie: mean and percentiles; seconds unless the field that holds it says otherwise."""

    mean: float
    p10: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one cell gave. Throughputs are output tok/s of the whole backend.

    `gross_tok_s` is what clients got: tokens in the window by the window's length, prefill of others included.
    `decode_tok_s` is the engine's speed while it decodes (tokens by time in decode steps), None without decode moments.
    `batch` is the mean number of sequences the engine had in a decode step (or running, where only that is told) and
    `tokens_per_step` what each gained in a step (1 without speculation); None where the engine does not tell.
    `queued`: the engine ran fewer sequences than were asked of it. `errors` counts failed requests by name; a cell with
    any is *cut*. `disturbed`: other traffic was on the engine. `client_cpu` is the share of one core this program
    itself used: near 1 the client was the limit. `at` is the wall clock at the window's begin, ISO 8601.
    """

    cell: Cell
    at: str
    window_s: float
    requests: int
    tokens: float
    source: Source
    gross_tok_s: float
    decode_tok_s: float | None = None
    batch: float | None = None
    tokens_per_step: float | None = None
    accept_length: float | None = None
    kv_use: float | None = None
    cache_hit_rate: float | None = None
    prompt_tokens: float | None = None
    ttft_s: Quantiles | None = None
    tpot_s: Quantiles | None = None
    request_tok_s: Quantiles | None = None
    chunk_gap_p99_s: float | None = None
    queued: bool = False
    disturbed: bool = False
    errors: Mapping[str, int] = field(default_factory=dict)
    client_cpu: float = 0.0
    spent_s: float = 0.0

    @property
    def tok_s(self) -> float:
        """The speed that curves are made of: while decoding where the engine tells it, else what clients got."""
        return self.gross_tok_s if self.decode_tok_s is None else self.decode_tok_s

    @property
    def cut(self) -> bool:
        """Whether requests failed, so that the load was not the one asked for."""
        return bool(self.errors)

    @property
    def usable(self) -> bool:
        """Whether the cell may speak: nothing failed, nobody else was there, and tokens came."""
        return not self.cut and not self.disturbed and self.tok_s > 0.0


# The flags that bound one sequence: SGLang's, and llama.cpp's, which shares its context out among its slots.
_MOST_CONTEXT = ("context_length", "slot_context")


@dataclass(frozen=True, slots=True)
class ArmFacts:
    """What one arm's engine said of itself before the first cell; None where it did not say. No key is among them.

    `flags` are the launch arguments that bear on speed, as far as told (`tp_size`, `dp_size`, `attention_backend`,
    `speculative_num_steps`, `speculative_eagle_topk`, `chunked_prefill_size`, ...), as text.
    """

    arm: Arm
    url: str
    engine: str
    model: str | None = None
    version: str | None = None
    max_running_requests: int | None = None
    kv_tokens: int | None = None
    speculative_algorithm: str | None = None
    num_steps: int | None = None
    topk: int | None = None
    draft_tokens: int | None = None
    adaptive: bool = False
    accelerator: str | None = None
    accelerators: int | None = None
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def most_context_tokens(self) -> int | None:
        """Tokens of prompt and answer that one sequence may have; None where the engine did not say."""
        told = next((self.flags[name] for name in _MOST_CONTEXT if name in self.flags), "")
        return int(told) if told.isdecimal() else None


class Estimate(NamedTuple):
    """One arm's speed at one concurrency: geometric mean over repeats with its 95 % interval, output tok/s.

    `low` and `high` are None with fewer repeats than an interval takes, or where it was `predicted` and not measured.
    """

    concurrency: int
    tok_s: float
    low: float | None = None
    high: float | None = None
    repeats: int = 0
    queued: bool = False
    predicted: bool = False


class FirstToken(NamedTuple):
    """One prompt asked alone: its tokens that no cache held, and the seconds until the first token of its answer."""

    prompt_tokens: int
    ttft_s: float


class Prefill(NamedTuple):
    """How fast one arm takes prompts in, one at a time, in prompt tokens a second with the 95 % interval; `low` and
    `high` are None with fewer pairs of prompts than an interval takes. `spent_s` is how long it took to find out."""

    arm: Arm
    context_tokens: int
    tok_s: float
    low: float | None
    high: float | None
    pairs: int
    spent_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ContextFindings:
    """All that was found in one condition.

    `curves` has an entry for each arm measured, points rising in concurrency; `contrasts` compares speculative with
    baseline at each concurrency where both were measured (or one predicted); `against_best` the adaptive arm with the
    better of the two, empty without that arm. `hysteresis` is the mean of ln(up / down) for each arm.
    """

    condition: Condition
    curves: Mapping[Arm, tuple[Estimate, ...]]
    contrasts: tuple[Contrast, ...]
    verdict: Verdict
    against_best: tuple[Contrast, ...] = ()
    hysteresis: Mapping[Arm, float] = field(default_factory=dict)

    @property
    def predicted(self) -> bool:
        """Whether any speed here was predicted by the law and not measured."""
        return any(point.predicted for points in self.curves.values() for point in points)


@dataclass(frozen=True, slots=True)
class RunningRouting:
    """The routing that the configuration asks for today, to compare with. Counts are sequences in flight."""

    policy: str
    leave_at: int
    enter_at: int
    pin: Role
    placement: Placement
    max_in_flight: Mapping[Role, int | None] = field(default_factory=dict)
    curves_file: str | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """A whole calibration: the main condition of each context bucket, the side conditions, and how it was come by.

    `main` has one entry for each context, the most usual first; `side` the prose, cold and natural-ending cells.
    `complete` is False while the plan was not carried out (budget, Ctrl-C); `notes` are sentences for the reader.
    `curves_file` is where the speeds will lie, as a configuration names it.
    """

    measured_at: str
    spent_s: float
    facts: Mapping[Arm, ArmFacts]
    main: tuple[ContextFindings, ...]
    side: tuple[ContextFindings, ...] = ()
    running: RunningRouting | None = None
    quick: bool = False
    complete: bool = True
    notes: tuple[str, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    prefills: tuple[Prefill, ...] = ()
    curves_file: str = CURVES_FILE
