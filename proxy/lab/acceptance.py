"""How many tokens a verification accepts: chance with a given mean. What a step costs is not here."""

from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from random import Random


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A truncated geometric length: at least 1 (the bonus token), at most `longest`, `mean` on average.

    `P(length >= j) = alpha ** (j - 1)` for j up to `longest`; alpha is solved from the mean. A mean outside
    1..longest raises ValueError.
    """

    mean: float
    longest: int
    alpha: float = field(init=False)
    _lengths: range = field(init=False, repr=False)
    _cumulative: tuple[float, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 1.0 <= self.mean <= self.longest:
            raise ValueError(f"mean accepted length {self.mean} must lie between 1 and {self.longest}")
        alpha = _solve_alpha(self.mean, self.longest)
        reach = [alpha**j for j in range(self.longest)] + [0.0]
        object.__setattr__(self, "alpha", alpha)
        object.__setattr__(self, "_lengths", range(1, self.longest + 1))
        object.__setattr__(self, "_cumulative", tuple(accumulate(a - b for a, b in pairwise(reach))))

    def draw(self, rng: Random, count: int) -> list[int]:
        """Accepted lengths of `count` sequences in one step."""
        return rng.choices(self._lengths, cum_weights=self._cumulative, k=count)


def _solve_alpha(mean: float, longest: int) -> float:
    """The share of positions that pass on, by bisection: the mean rises with it from 1 to `longest`."""
    low, high = 0.0, 1.0
    # 60 halvings leave an error far below anything a float can show in the mean.
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**j for j in range(longest)) < mean:
            low = middle
        else:
            high = middle
    return high
