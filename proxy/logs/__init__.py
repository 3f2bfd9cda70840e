"""Facts to log lines: JSON for machines, text for people; one line a request with the numbers of its decision.

Nothing of a request's body, headers or query is ever logged; a client's own words appear only as its request id, which
is checked to be visible ASCII. An exception is logged as its type and the lines it came through: its message, or the
values of variables, may be a prompt. requests.py has the line of a request, acts.py that of an operator's act,
setup.py all others, keep.py what of them is kept, output.py the way out; the names that the rest of the proxy uses are
here.
"""

from proxy.logs.acts import audit, ending
from proxy.logs.controls import escape_controls
from proxy.logs.output import LineWriter, written_aside
from proxy.logs.requests import request_fields, request_line, request_settled
from proxy.logs.setup import changed, configure, loop_failed, quiet_libraries

__all__ = [
    "LineWriter",
    "audit",
    "changed",
    "configure",
    "ending",
    "escape_controls",
    "loop_failed",
    "quiet_libraries",
    "request_fields",
    "request_line",
    "request_settled",
    "written_aside",
]
