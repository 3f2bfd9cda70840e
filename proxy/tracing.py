"""Whether requests are traced: looked at once, at the start. Off, nothing of it is loaded and nothing is asked again.

What is traced is in traced.py and traces/.
"""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from proxy.config import Settings
from proxy.errors import ConfigError
from proxy.relay import Relay

if TYPE_CHECKING:
    from proxy.traces import Traces

# By which OpenTelemetry is turned off everywhere.
DISABLED = "OTEL_SDK_DISABLED"
MISSING = (
    "traces.enabled needs packages that are not installed; mend: pip install 'crossover-proxy[otel]', in a checkout "
    "python3 scripts/environment.py otel, or set traces.enabled: false"
)


class Tracing:
    """The switch."""

    def __init__(self) -> None:
        self._traces: Traces | None = None

    def start(self, settings: Settings, relay: Relay, warn: Callable[[str], None]) -> None:
        """Have requests traced from now on, where the settings say so. `warn` is called on the loop's thread.

        Raises ConfigError where that cannot be.
        """
        chosen = settings.traces
        if not chosen.enabled or os.environ.get(DISABLED, "").strip().lower() == "true":
            return
        try:
            from proxy.traced import TracedTrip  # noqa: PLC0415 - not for those who trace nothing
            from proxy.traces import Destination, Traces  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise ConfigError(MISSING) from error
        loop = asyncio.get_running_loop()
        destination = Destination(chosen.endpoint, settings.sources.headers, chosen.sample_ratio, chosen.service_name)

        def told(message: str) -> None:
            loop.call_soon_threadsafe(warn, message)

        self._traces = Traces(destination, told)
        relay.trip = partial(TracedTrip, self._traces)

    async def stop(self) -> None:
        """Send what is left; for some seconds at most."""
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)
