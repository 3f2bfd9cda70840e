"""Who is favoured first on shared GPUs where curves do not tell, and when that turns out wrong: the trial that begins
with the first request.

Nobody is there yet who could be held up, so that it costs next to nothing: what a change costs are those who must run
out beside the others, and after six seconds at six tenths of capacity these are dozens. Trials in a crowd are in
trying.py.
"""

from proxy.model import SPECULATIVE, Role
from proxy.routing.curves import Curves
from proxy.routing.delays import MAX_LISTED
from proxy.routing.demand import DEMAND_S
from proxy.routing.likeness import all_alike
from proxy.routing.trying import KEEPS

# It is watched for so long. Afterwards the demand is known, and curves as corrected decide as they do ever after.
OPENS_S = 4.0 * DEMAND_S

# It is left where it is slower by so many standard deviations at the number that is there now. While it is not, nothing
# is lost by staying: what curves foretell of more in flight than was seen was wrong as often as right (tried).
SLOWER = 2.0


def first_role(curves: Curves) -> Role | None:
    """Who is favoured first; None where curves tell. Speculation: it mostly serves those better who come first, and has
    the curve of which less is known. That of the baseline is taken as measured until it is seen: what is found to be
    slower than that is left for it. The other way round the baseline would have to be left for what nobody has seen, in
    a crowd."""
    return SPECULATIVE if all_alike(curves) else None


def is_worse(held: tuple[float, float], slower: float, variance: float) -> bool:
    """Whether the role that was favoured first is to lose that: with all demand it would hold more by KEEPS than the
    other one (`held`, its own first), and it is `slower` in ln, which is known with that variance, at the number that
    is there now. Where neither could carry the demand, which soon after the start is seldom true, the speeds at that
    number decide alone."""
    here, there = held
    more = slower > KEEPS if min(held) >= MAX_LISTED else here > (1.0 + KEEPS) * there
    return more and slower > 0.0 and SLOWER * SLOWER * variance <= slower * slower
