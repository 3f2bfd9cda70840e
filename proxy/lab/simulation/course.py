"""What happens in a run beside requests that come and are served. When they come is in arrivals.py."""

from dataclasses import dataclass

# As the proxy's own `poll_interval` is by default.
POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Course:
    """A run's course. `polled`: each engine is asked for its load every POLL_S, as the proxy does; policies that
    learn nothing from it are spared the time."""

    polled: bool = False
