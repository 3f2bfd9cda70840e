"""What an engine has decoded since its start, as sums over its steps: the numbers that a real one tells when polled.

Here they come from whole stretches between two changes of a batch, so that there may be a part of a step at their ends.
"""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Moments:
    """Steps, and sums over them of the batch b, of the step's time t in microseconds, of b*b, of b*t and of the tokens
    that all gained. Prefill is not in t; on shared GPUs the other engine's step is, as a clock in the engine has it."""

    steps: float = 0.0
    batch: float = 0.0
    time_us: float = 0.0
    batch_squared: float = 0.0
    batch_time_us: float = 0.0
    generated: float = 0.0

    def add(self, batch: int, steps: float, elapsed_s: float, gained: float) -> None:
        """Steps of one batch that took `elapsed_s` together and gave each sequence `gained` tokens."""
        held, elapsed_us = batch * steps, 1e6 * elapsed_s
        self.steps += steps
        self.batch += held
        self.time_us += elapsed_us
        self.batch_squared += batch * held
        self.batch_time_us += batch * elapsed_us
        self.generated += batch * gained

    def told(self) -> tuple[float, ...]:
        """As `EngineLoad.moments`."""
        return (self.steps, self.batch, self.time_us, self.batch_squared, self.batch_time_us, self.generated)
