"""How long one step of an engine takes, as a function of its batch. Scheduling and acceptance are not here."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proxy.model import Role


@dataclass(frozen=True, slots=True)
class Point:
    """Throughput of both roles, in output tok/s of the whole server, with `concurrency` sequences in flight."""

    concurrency: float
    speculative: float
    baseline: float

    def of(self, role: Role) -> float:
        """The throughput of one role, output tok/s."""
        return self.speculative if role is Role.SPECULATIVE else self.baseline


@dataclass(frozen=True, slots=True)
class ModelM:
    """Step times as a formula; every parameter is in milliseconds unless it says otherwise.

    A forward pass over n tokens of b sequences with L tokens of mean context takes
    `t0 + m(1 - e^(-n/ne)) + c n + A(k b L + kc L + kappa b)`: t0 is the floor of weights and launches, m and ne
    (tokens) the loading of experts that saturates, c the compute per token, k, kc and kappa the attention. A is 1
    for plain decoding and `a` for verification, which passes V = `verify_tokens` tokens per sequence, adds
    `d0 + d1 b` for drafting and emits `tau` tokens per sequence on average. Parameters are fitted to published
    curves.
    """

    t0: float
    m: float
    ne: float
    c: float
    d0: float
    d1: float
    tau: float
    verify_tokens: float
    k: float = 0.0
    kc: float = 0.0
    kappa: float = 0.0
    a: float = 1.0

    def step_ms(self, role: Role, batch: float, context_tokens: float = 0.0) -> float:
        """Milliseconds of one step with `batch` sequences of `context_tokens` mean context."""
        if role is Role.BASELINE:
            return self._pass_ms(batch, batch, context_tokens, 1.0)
        verified = self._pass_ms(self.verify_tokens * batch, batch, context_tokens, self.a)
        return verified + self.d0 + self.d1 * batch

    def throughput(self, role: Role, batch: float, context_tokens: float = 0.0) -> float:
        """Output tok/s of the whole server with `batch` sequences decoding."""
        emitted = self.tau if role is Role.SPECULATIVE else 1.0
        return 1000.0 * emitted * batch / self.step_ms(role, batch, context_tokens)

    def _pass_ms(self, tokens: float, batch: float, context: float, attention: float) -> float:
        weights = self.t0 + self.m * (1.0 - math.exp(-tokens / self.ne)) + self.c * tokens
        return weights + attention * (self.k * batch * context + self.kc * context + self.kappa * batch)


class StepTime(Protocol):
    """What an engine asks: the time of one step, in milliseconds, before jitter."""

    def step_ms(self, batch: float, context_tokens: float) -> float:
        """Milliseconds of one step with `batch` (at least 1) sequences of `context_tokens` mean context."""


@dataclass(frozen=True, slots=True)
class FittedTime:
    """Step times from a fitted formula. `base_context_tokens` is the context the curve was measured at."""

    model: ModelM
    role: Role
    base_context_tokens: float = 0.0

    def step_ms(self, batch: float, context_tokens: float) -> float:
        """As `StepTime.step_ms`; the context of the curve and that of the sequences add up."""
        return self.model.step_ms(self.role, batch, self.base_context_tokens + context_tokens)


@dataclass(frozen=True, slots=True)
class TableTime:
    """Step times from a measured table; the context is the one the table was measured at, whatever is asked.

    Between two points throughput is a straight line in log-log; below the first and beyond the last point the step
    time goes on as a straight line. Step times never fall as the batch grows.
    """

    points: tuple[Point, ...]
    role: Role
    tokens_per_step: float
    _ms: Callable[[float], float] = field(init=False, repr=False, compare=False)
    _known: dict[float, float] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        batches = [point.concurrency for point in self.points]
        raw = [1000.0 * self.tokens_per_step * point.concurrency / point.of(self.role) for point in self.points]
        object.__setattr__(self, "_ms", _curve_ms(batches, _rising(raw)))

    def step_ms(self, batch: float, context_tokens: float) -> float:
        """As `StepTime.step_ms`; `context_tokens` is not used."""
        known = self._known.get(batch)
        if known is None:
            known = self._known[batch] = self._ms(batch)
        return known


def _rising(values: Sequence[float]) -> list[float]:
    """The running maximum: a bigger batch is never faster than a smaller one."""
    top = 0.0
    rising = []
    for value in values:
        top = max(top, value)
        rising.append(top)
    return rising


def _curve_ms(batches: list[float], times: list[float]) -> Callable[[float], float]:
    # Throughput b/T is straight in log-log exactly when T is, so the interpolation is done on T.
    def at(batch: float) -> float:
        if len(batches) == 1:
            # One point tells no slope: throughput stays flat.
            return times[0] * batch / batches[0]
        place = bisect_right(batches, batch)
        if place == 0:
            # A straight line that runs too low is cut where throughput would exceed the first measured one.
            return max(_line(batches, times, 0, batch), times[0] * batch / batches[0])
        if place == len(batches):
            return _line(batches, times, place - 2, batch)
        return _log_line(batches, times, place - 1, batch)

    return at


def _line(xs: list[float], ys: list[float], at: int, x: float) -> float:
    slope = (ys[at + 1] - ys[at]) / (xs[at + 1] - xs[at])
    return ys[at + 1] + slope * (x - xs[at + 1])


def _log_line(xs: list[float], ys: list[float], at: int, x: float) -> float:
    share = math.log(x / xs[at]) / math.log(xs[at + 1] / xs[at])
    return ys[at] * math.pow(ys[at + 1] / ys[at], share)
