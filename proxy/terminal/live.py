"""The screen of `crossover top`: frames drawn in place, and the terminal as it was at the end. The one room of rich.

What is drawn is in frame.py. Where rich is not installed, frames can be had as plain text (top.py).
"""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from proxy.terminal.frame import Line

Draw = Callable[[list[Line]], None]


@contextlib.contextmanager
def screen() -> Iterator[tuple[Console, Draw]]:
    """A screen of its own while it lasts. Without colours where NO_COLOR is set. `Console.size` is the terminal's."""
    console = Console(markup=False, highlight=False, emoji=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def draw(lines: list[Line]) -> None:
            texts = [Text.assemble(*line, no_wrap=True, overflow="crop", end="") for line in lines]
            live.update(Text("\n", end="").join(texts), refresh=True)

        yield console, draw
