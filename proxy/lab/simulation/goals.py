"""What a request must keep to count as good. Counting is in tally.py, and what a policy makes of goals in routing/."""

from typing import NamedTuple


class Slo(NamedTuple):
    """Goals: seconds to the first token, and seconds for each token after it."""

    ttft_s: float = 2.0
    tpot_s: float = 0.05

    def kept(self, ttft_s: float, tpot_s: float) -> bool:
        """Whether a request with these times is good."""
        return ttft_s <= self.ttft_s and tpot_s <= self.tpot_s
