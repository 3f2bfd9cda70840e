"""The loop that tests run on: the one of `crossover serve`, which ends whatever a test has left open."""

import warnings

import uvloop


class EndingLoop(uvloop.Loop):
    """uvloop warns of each socket that is open as it closes, and closes it then. Where warnings are errors it stays
    open, and the loop waits for its end for ever: of a test that fails, and so has not closed its server."""

    def close(self) -> None:
        """Close everything, and tell then of what was open."""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            super().close()
        for each in told:
            warnings.warn(each.message, stacklevel=2)
