"""How fast an engine decodes at each batch, as a table, and how much two of them can take. Running them is not here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from proxy.lab.acceptance import Acceptance
from proxy.lab.adaptive import ADAPTIVE_TAX, Pause
from proxy.lab.curve import Curve
from proxy.model import ROLES, Placement, Role


@dataclass(frozen=True, slots=True)
class Pace:
    """One engine's steps by the number of sequences in its batch, which is the index; at 0 all is 0.

    `step_s` is how long a step takes and `tokens` what each sequence gains in it on average. `surplus_tokens` is what
    the last step of an answer yields beyond its end on average: nobody gets them, and they take time all the same.
    """

    step_s: tuple[float, ...]
    tokens: tuple[float, ...]
    surplus_tokens: float = 0.0

    @property
    def most(self) -> int:
        """The largest batch."""
        return len(self.step_s) - 1

    @property
    def drafts(self) -> bool:
        """Whether a sequence alone gains more than a token by a step."""
        return self.most > 0 and self.tokens[1] > 1.0

    def tok_s(self, batch: int) -> float:
        """Output tok/s of the whole engine."""
        return batch * self.tokens[batch] / self.step_s[batch] if batch else 0.0

    def seconds_per_token(self, batch: int) -> float:
        """Seconds in which each of `batch` (at least 1) sequences gains a token."""
        return self.step_s[batch] / self.tokens[batch]


Paces = Mapping[Role, Pace]


@dataclass(frozen=True, slots=True)
class Work:
    """What a request asks of an engine on average: output tokens, and seconds of prefill, in which nobody decodes."""

    tokens: float
    prefill_s: float = 0.0


def paces(curve: Curve, most: int, context_tokens: float = 0.0, *, fitted: bool = False) -> dict[Role, Pace]:
    """Both engines of a curve with batches up to `most`; `context_tokens` is the mean context of what decodes, which
    only a fit takes notice of. Raises `ConfigError` for a fit that there is not."""
    steps = {role: curve.step_time(role, fitted=fitted) for role in ROLES}
    gained = {Role.SPECULATIVE: curve.tokens_per_step, Role.BASELINE: 1.0}
    found = {}
    for role in ROLES:
        step_s = [steps[role].step_ms(batch, context_tokens) / 1000.0 for batch in range(1, most + 1)]
        surplus = _surplus(curve.tokens_per_step, longest(curve)) if role is Role.SPECULATIVE else 0.0
        found[role] = Pace((0.0, *step_s), (0.0, *[gained[role]] * most), surplus)
    return found


def longest(curve: Curve) -> int:
    """The most tokens that a sequence can gain in a step."""
    return max(curve.num_steps + 1, ceil(curve.tokens_per_step))


def accepting(curve: Curve, both: Paces, tokens_per_step: float) -> dict[Role, Pace]:
    """The same engines where speculation gains so many tokens a step, from 1 to the longest: steps cost the same."""
    tokens = min(max(tokens_per_step, 1.0), float(longest(curve)))
    drafted = both[Role.SPECULATIVE]
    gained = (0.0, *[tokens] * drafted.most)
    return {**both, Role.SPECULATIVE: Pace(drafted.step_s, gained, _surplus(tokens, longest(curve)))}


def adaptive(both: Paces, tax: float = ADAPTIVE_TAX) -> Pace:
    """One instance that goes without speculation at each step for which that is faster, `tax` (a share) included."""
    drafted, plain = both[Role.SPECULATIVE], both[Role.BASELINE]
    pause = Pause(_AsTable(plain), drafted.tokens[1], tax)
    steps, tokens = [0.0], [0.0]
    for batch in range(1, drafted.most + 1):
        paused_ms = pause.step_ms(1000.0 * drafted.step_s[batch], batch, 0.0)
        steps.append(drafted.step_s[batch] if paused_ms is None else paused_ms / 1000.0)
        tokens.append(drafted.tokens[batch] if paused_ms is None else plain.tokens[batch])
    return Pace(tuple(steps), tuple(tokens), drafted.surplus_tokens if tokens[1] > 1.0 else 0.0)


def capacity(both: Paces, placement: Placement, works: Mapping[Role, Work]) -> float:
    """Requests per second at most: of both engines where each has GPUs of its own, of the better one on shared GPUs."""
    rates = [max(_rates(both[role], works[role])) for role in ROLES]
    return sum(rates) if placement is Placement.SEPARATE else max(rates)


def _rates(pace: Pace, work: Work) -> Iterator[float]:
    for batch in range(1, pace.most + 1):
        yield 1.0 / (work.tokens / pace.tok_s(batch) + work.prefill_s)


def _surplus(tokens_per_step: float, most: int) -> float:
    """The mean of what remains of an accepted length after the place of a random token in it."""
    alpha = Acceptance(tokens_per_step, most).alpha
    reach = [alpha**place for place in range(most)]
    square = sum((2 * place + 1) * share for place, share in enumerate(reach))
    return (square / sum(reach) - 1.0) / 2.0


@dataclass(frozen=True, slots=True)
class _AsTable:
    pace: Pace

    def step_ms(self, batch: float, context_tokens: float) -> float:
        return 1000.0 * self.pace.step_s[int(batch)]
