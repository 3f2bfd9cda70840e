"""Facts to Prometheus: the one room that knows metric names, labels and buckets. The names that others use are here.

counting.py has what is counted as it happens, gauges.py what is read at a scrape, tallies.py the numbers themselves,
totals.py sums of them for the status page.
Everything in this room runs on the loop's thread, a scrape too.
"""

from proxy.metrics.counting import CONTENT_TYPE, ERROR_EVENT, NO_ROLE, OTHER, Metrics
from proxy.metrics.gauges import BackendReading, Reading
from proxy.metrics.tallies import Family
from proxy.metrics.totals import RoleTotals, Totals

__all__ = [
    "CONTENT_TYPE",
    "ERROR_EVENT",
    "NO_ROLE",
    "OTHER",
    "BackendReading",
    "Family",
    "Metrics",
    "Reading",
    "RoleTotals",
    "Totals",
]
