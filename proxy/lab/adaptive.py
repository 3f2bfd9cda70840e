"""An engine that switches its own speculation off and on: at which steps it does. The engine itself is in engine.py."""

from dataclasses import dataclass

from proxy.lab.step_time import StepTime

# What not speculating costs an engine that could: published for one whose speculation was pinned to zero steps, at two
# sequences, against a server without any (6.56 % more time per token). It keeps the drafter's cache warm all the same.
ADAPTIVE_TAX = 0.066


@dataclass(frozen=True, slots=True)
class Pause:
    """When to go without speculation: at every step for which that is faster per token, the tax included.

    `plain` are the step times of an engine that cannot speculate, `tokens_per_step` what a sequence gains in a step
    that does, and `tax` the share that a plain step of this engine takes longer.
    """

    plain: StepTime
    tokens_per_step: float
    tax: float = ADAPTIVE_TAX

    def step_ms(self, drafted_ms: float, batch: int, context_tokens: float) -> float | None:
        """Milliseconds of a plain step where it beats one of `drafted_ms`; None where the engine should speculate."""
        plain_ms = self.plain.step_ms(batch, context_tokens) * (1.0 + self.tax)
        return plain_ms if plain_ms < drafted_ms / self.tokens_per_step else None
