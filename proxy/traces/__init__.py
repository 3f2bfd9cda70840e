"""Requests to OpenTelemetry: the one room that knows its library, and loaded only where `traces.enabled` is set.

trace.py follows one request on its way, which costs it a few ids and instants; spans.py makes of that what a collector
gets, on the exporter's thread, and export.py sends it. A span holds what the log line does: no word of a prompt or an
answer. When a trace begins and ends is in traced.py.
"""

from proxy.traces.export import Destination, Traces
from proxy.traces.trace import CARRIED, Trace

__all__ = ["CARRIED", "Destination", "Trace", "Traces"]
