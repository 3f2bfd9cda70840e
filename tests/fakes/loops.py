"""The loop that tests run on: the one of `crossover serve`, which ends whatever a test has left open."""

import warnings

import uvloop


class EndingLoop(uvloop.Loop):
    """uvloop warns of each socket that is open as it closes, and closes it then. Where warnings are errors it stays
    open, and the loop waits for its end for ever: of a test that fails, and so has not closed its server, or of a
    connection that came in the last moment. Here such a warning is none but that."""

    def close(self) -> None:
        """Close everything, and tell of what was open."""
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            super().close()
