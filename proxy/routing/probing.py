"""Which requests are sent to the other backend so that its speed there stays known: few, cheap ones, by count alone.

Nothing is drawn by lot: equal requests at equal times are probed alike. What is learned from them is in learner.py.
"""

from dataclasses import dataclass, field

from proxy.model import ROLES, Costs, Decision, Reason, Role, Traits
from proxy.routing.demand import BYTES_PER_TOKEN, MAX_PROMPT_TOKENS

# A probe is cheap where the other backend is predicted to cost at most so much more. At one request in a hundred that
# is a thousandth of all cost at most.
MOST_REGRET = 0.10

# The regret is a share, and a tenth of a prompt that takes a minute to read is no small thing: a probe's prompt has at
# most so many times the mean of its kind, which lets four in five through where lengths spread much. What the other
# backend has cached of it is not counted on.
MOST_PROMPTS = 2.0

# A prompt so short, in tokens, is read in one step or two of any engine: it is cheap whatever the others are.
SHORT_TOKENS = 4096.0

# Probes that each request earns, and those there are at the start: one in a hundred from the fivehundredth on.
EARNED, AT_START = 0.008, 1.0

# What was seen so long ago is to be seen again, as far as it is cheap. Each time that brings nothing new doubles the
# wait, up to the longest: an engine seldom changes by itself.
FRESH_S, CHEAP_S, LONGEST_CHEAP_S = 60.0, 10.0, 600.0

# A backend that is never chosen where it is not cheap may have become the better one: it is asked again with so many
# requests after five minutes, and each time in vain after twice as long, up to six hours.
DEAR_S, LONGEST_DEAR_S, DEAR_REQUESTS = 300.0, 6 * 3600.0, 2

# On shared GPUs the first time after half an hour: there everybody waits for each step of a probe, which costs as much
# as a dozen requests or two.
SHARED_DEAR_S = 1800.0

# What a policy chose by curves alone; a wish, a full or a failing backend is no time to try something.
_FREE = (Reason.CHEAPER, Reason.REGIME)


@dataclass(slots=True)
class Wait:
    """When a backend may be asked again, and how long after that: cheaply, and whatever it costs."""

    cheap_at_s: float
    dear_at_s: float
    cheap_s: float = CHEAP_S
    dear_s: float = DEAR_S
    dear_left: int = 0


@dataclass(slots=True)
class Probes:
    """The budget, and whose turn it is. `dear_s` is the first wait for a dear probe; `requests` and `spent` are counts
    since the start."""

    started_at_s: float
    dear_s: float = DEAR_S
    requests: int = 0
    spent: int = 0
    waits: dict[Role, Wait] = field(init=False)
    cheap: frozenset[Role] = frozenset()
    dear: frozenset[Role] = frozenset()

    def __post_init__(self) -> None:
        dear_at_s = self.started_at_s + self.dear_s
        self.waits = {role: Wait(self.started_at_s, dear_at_s, dear_s=self.dear_s) for role in ROLES}

    def look(self, known_s: dict[Role, float | None], now_s: float) -> None:
        """Set whose turn it is, where `known_s` tells when each backend was last seen at its present load."""
        stale = [role for role, at_s in known_s.items() if at_s is None or now_s - at_s > FRESH_S]
        self.cheap = frozenset(role for role in stale if now_s >= self.waits[role].cheap_at_s)
        self.dear = frozenset(role for role in stale if now_s >= self.waits[role].dear_at_s)

    def moved(self, role: Role) -> None:
        """A backend turned out to be another than believed: it is worth another look soon."""
        wait = self.waits[role]
        wait.cheap_s, wait.dear_s = CHEAP_S, self.dear_s

    def asks(self, decision: Decision, traits: Traits, mean_tokens: float) -> bool:
        """Whether a request that was decided so is to go to the other backend instead. Counts the request.

        `mean_tokens` is the mean context of the requests that went where this one was to go.
        """
        self.requests += 1
        if not self.cheap and not self.dear:
            return False
        role, costs = decision.role, decision.because.costs
        if role is None or costs is None or traits.weight != 1 or decision.reason not in _FREE:
            return False
        if not _is_short(traits, mean_tokens):
            return False
        if self.spent + 1.0 > AT_START + EARNED * self.requests:
            return False
        other = role.other
        return other in self.dear or (other in self.cheap and _regret(costs, role) <= MOST_REGRET)

    def sent(self, role: Role, now_s: float) -> None:
        """A probe goes to a backend."""
        self.spent += 1
        wait = self.waits[role]
        wait.cheap_at_s, wait.cheap_s = now_s + wait.cheap_s, min(2.0 * wait.cheap_s, LONGEST_CHEAP_S)
        self.cheap -= {role}
        if role not in self.dear:
            return
        wait.dear_left = (wait.dear_left or DEAR_REQUESTS) - 1
        if not wait.dear_left:
            wait.dear_at_s, wait.dear_s = now_s + wait.dear_s, min(2.0 * wait.dear_s, LONGEST_DEAR_S)
            self.dear -= {role}


def _is_short(traits: Traits, mean_tokens: float) -> bool:
    """Whether a prompt is read soon, beside the others."""
    most = min(max(SHORT_TOKENS, MOST_PROMPTS * mean_tokens), MAX_PROMPT_TOKENS)
    return traits.prompt_bytes <= most * BYTES_PER_TOKEN


def _regret(costs: Costs, role: Role) -> float:
    """How much more the other backend is predicted to cost, as a share; infinite where that is not known."""
    ours, theirs = costs.speculative_s, costs.baseline_s
    if role is not ROLES[0]:
        ours, theirs = theirs, ours
    return theirs / ours - 1.0 if 0.0 < ours < float("inf") else float("inf")
