"""The demand that lasts: the mean since what is asked for last changed by more than chance. What the demand of the
last seconds is stands in demand.py, what is made of both in consolidate.py.

A quarter of a minute holds so few requests that chance moves it by a tenth at four a second and by half at one in ten
seconds. Steady load is known the better the longer it lasts; load that changes is followed at once.
"""

from math import exp, sqrt

from proxy.model import Demand
from proxy.routing.demand import DEMAND_S

# Time constant of the mean at most: demand that drifts without a leap is followed within so long.
LONGEST_S = 300.0

# A leap is a difference of so many standard deviations, which chance makes about once in a day of looks.
LEAP = 4.0

# The square of the standard deviation of the square root of a Poisson count, and what must be added to the count so
# that this holds for small ones as well (Anscombe).
POISSON_SPREAD, _SMALL = 0.25, 0.375


def lasting(demand: Demand, elapsed_s: float) -> Demand:
    """`demand` with its mean aged for `elapsed_s` (above zero) since the last look, and begun anew where the demand of
    the last seconds is further from it than by chance.

    By chance: of requests that come at random, or of these, where they were seen to come in bursts.
    """
    tok_s, context, answer, held, peak, prompt, mean, lasted_s, spread, excess, looked_at_s, flown, _ = demand
    since_s = max(lasted_s, DEMAND_S)
    left = exp(-elapsed_s / since_s)
    flying = flown / elapsed_s
    held = flying + (held - flying) * left
    mean = mean * left if lasted_s else tok_s
    lasted_s = min(lasted_s + elapsed_s, LONGEST_S)
    counted = 2.0 * DEMAND_S / max(answer, 1.0)
    apart = sqrt(tok_s * counted + _SMALL) - sqrt(mean * counted + _SMALL)
    square = apart * apart
    if square > LEAP * LEAP * max(POISSON_SPREAD, spread):
        mean, lasted_s = tok_s, DEMAND_S
    spread += (square - spread) * (1.0 - exp(-elapsed_s / LONGEST_S))
    return Demand(tok_s, context, answer, held, peak, prompt, mean, lasted_s, spread, excess, looked_at_s)
