"""When the favour is tried with the backend of which nothing is known, and when that ends.

On shared GPUs a single request beside many holds all of them up and tells next to nothing of what its backend would do
with all of them. So all new requests go there for some seconds. What is learned meanwhile is in learner.py, and how
many a backend would hold in flight by that in consolidate.py. The trial that begins with the first request, when nobody
is there who could be held up, is in opening.py.
"""

from dataclasses import dataclass
from math import exp, inf, sqrt
from typing import NamedTuple

from proxy.model import Demand, Role
from proxy.routing.belief import SETTLED_VARIANCE
from proxy.routing.demand import DEMAND_S
from proxy.routing.learner import Learner

# After the first trial one is made again only where by now it is predicted to hold at most so much more in flight.
MOST_REGRET = 0.10

# It ends with more in flight than so many times what is foretold without it, and so many spreads of that count. While
# those that were there run out beside the others, 1.7 times as many are in flight though both be alike.
MOST_TIMES, SPREADS = 2.0, 2.0
# Nobody foretells more than so many times what is in flight when it begins, and some.
MOST_GROWTH, SOME = 2.0, 16.0
# It lasts so long at most. Those of a tenth to six tenths of capacity took 4 to 30 s (simulated).
LASTS_S = 90.0

# What was seen with less than such a share of what is foretold in flight is no word on the load there is.
LEAST_HELD = 0.5
# A difference of so many standard deviations is clear.
CLEAR = 3.0

# Those after the first begin in a lull: so many spreads below what is foretold. All that are there wait for those that
# are sent to the other backend.
LULL = 1.5

# How soon after one the next may be, doubled each time up to the longest.
WAIT_S, LONGEST_WAIT_S = 600.0, 6 * 3600.0

# What trials cost, that of the next one included, may come to this share of all time that requests were in flight, for
# another to be made. It is counted twice, since a way back costs as much.
MOST_SHARE = 0.01

# The tried backend keeps the favour unless it holds so much more in flight than the other one would: a change back
# costs too. And by a demand that is higher than it seems by so many of its standard deviations: who cannot carry it in
# the end fills up, and is left then at many times the cost.
KEEPS, CAUTION = 0.10, 1.5


class Try(NamedTuple):
    """One trial: of which role, since when, how many would be in flight without it, at most so many may be, and the
    time in flight of all requests before it. One that `opens` began with the first request."""

    role: Role
    began_s: float
    foretold: float
    most: float
    area_s: float
    opens: bool = False


@dataclass(slots=True)
class Tries:
    """The trial that is on (`now`), how many have been made, and the time in flight that they cost (`spent_s`). The
    last one lasted from `began_s` to `ended_s`, which is infinite while it is on."""

    now: Try | None = None
    made: int = 0
    spent_s: float = 0.0
    next_at_s: float = -inf
    wait_s: float = WAIT_S
    began_s: float = inf
    ended_s: float = inf

    def due(self, regret: float, now_s: float, area_s: float, foretold: float) -> bool:
        """Whether one may begin, where the other role is predicted to hold by such a share more, and so many would be
        in flight without. `area_s` is the time in flight of all requests so far."""
        if self.now is not None:
            return False
        if not self.made:
            return True
        price_s = foretold * LASTS_S  # as many again for as long as it may last
        affordable = 2.0 * (self.spent_s + price_s) <= MOST_SHARE * area_s
        return affordable and now_s >= self.next_at_s and regret <= MOST_REGRET

    def open(self, role: Role, now_s: float) -> None:
        """Watch `role`, which has had the favour from the start: nobody is sent elsewhere for that."""
        self.made += 1
        self.now = Try(role, now_s, 0.0, inf, 0.0, opens=True)
        self.began_s, self.ended_s = now_s, inf

    def begin(self, role: Role, foretold: float, now_s: float, area_s: float) -> None:
        """Try `role`, where so many would be in flight without."""
        self.made += 1
        most = MOST_TIMES * foretold + SPREADS * sqrt(foretold)
        self.now = Try(role, now_s, foretold, most, area_s)
        self.began_s, self.ended_s = now_s, inf

    def end(self, now_s: float, area_s: float) -> None:
        """Make an end, and count what it cost."""
        this, self.now = self.now, None
        if this is not None:
            self.ended_s = now_s
            if not this.opens:
                self.spent_s += max(0.0, area_s - this.area_s - this.foretold * (now_s - this.began_s))
            self.next_at_s, self.wait_s = now_s + self.wait_s, min(2.0 * self.wait_s, LONGEST_WAIT_S)

    def were_on(self, at_s: float) -> bool:
        """Whether what was decided then was sent to be tried: by the last trial, of those before none runs any more."""
        return self.began_s <= at_s <= self.ended_s


def shows(learner: Learner, role: Role, in_flight: int) -> bool:
    """Whether the speed of the favoured backend with so many in flight is known as far as it can be: of one that tells
    its steps they are needed, since nothing else is shown beside it."""
    side = learner.sides[role]
    silent = side.look is None or side.look.load.moments is None
    return side.acts and (silent or side.alone is not None) and learner.known_s(role, in_flight) is not None


def is_over(this: Try, in_flight: int, now_s: float) -> bool:
    """Whether a trial is to end whatever it has shown."""
    return in_flight > this.most or now_s - this.began_s >= LASTS_S


def is_clear(difference: float, variance: float) -> bool:
    """Whether a speed that differs from the other one's by so much, in ln, is known well enough to choose."""
    return variance <= SETTLED_VARIANCE or CLEAR * CLEAR * variance <= difference * difference


def is_lull(in_flight: int, foretold: float) -> bool:
    """Whether few are in flight by chance."""
    return in_flight <= foretold - LULL * sqrt(foretold)


def foretold(held: float, in_flight: int) -> float:
    """How many would be in flight without a trial, where that is predicted to be `held` and so many are now. A demand
    that was seen for seconds can be off by any factor."""
    return max(1.0, in_flight, min(held, MOST_GROWTH * in_flight + SOME))


def asked(demand: Demand, lasted_s: float, caution: float = CAUTION) -> float:
    """The demand, tok/s, where requests have come for `lasted_s`: what it seems to be, and so many times its standard
    deviation."""
    begun = 1.0 - exp(-lasted_s / DEMAND_S)  # the smoothed one began with nothing
    tok_s = demand.lasting_tok_s if lasted_s > 4.0 * DEMAND_S else demand.tok_s / max(begun, 1e-3)
    requests = tok_s / max(1.0, demand.answer_tokens) * min(lasted_s, 2.0 * DEMAND_S)
    return tok_s * (1.0 + caution / sqrt(max(1.0, requests)))
