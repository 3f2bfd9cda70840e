"""Sums over what is counted, for whoever shows the present and not a scrape: per role, over all reasons and statuses.

The counters themselves are in counting.py.
"""

from typing import NamedTuple


class RoleTotals(NamedTuple):
    """One role since the start: requests that it serves or served (of one that failed over the first backend has none),
    output tokens of answers that ended, and the sums and counts of the streams' TTFT and TPOT, seconds."""

    requests: int
    tokens: int
    ttft_s: float
    ttfts: int
    tpot_s: float
    tpots: int

    def since(self, before: "RoleTotals") -> "RoleTotals":
        """What has come since an earlier look."""
        requests, tokens, ttft_s, ttfts, tpot_s, tpots = before
        return RoleTotals(
            self.requests - requests,
            self.tokens - tokens,
            self.ttft_s - ttft_s,
            self.ttfts - ttfts,
            self.tpot_s - tpot_s,
            self.tpots - tpots,
        )


class Totals(NamedTuple):
    """Everything since the start. `failures` are requests that a backend or the proxy itself failed; `refused` those
    that the proxy turned away. `broken` of the failures broke after their answer had begun; `failed_by` and
    `refused_by` count by code. `named` are the decisions by the client's header, `ruled` those by a rule."""

    speculative: RoleTotals
    baseline: RoleTotals
    failures: int
    refused: int
    broken: int
    failed_by: dict[str, int]
    refused_by: dict[str, int]
    named: int = 0
    ruled: int = 0
