"""`crossover top`: what a running proxy does, live in a terminal, or as one plain frame after the other in a pipe.

What is shown is had by following.py; how a frame looks is in frame.py, the screen in live.py.
"""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from types import FrameType

from proxy.terminal.bars import ASCII_BLOCKS, BLOCKS
from proxy.terminal.following import Following
from proxy.terminal.frame import Line, frame
from proxy.terminal.port import Port, Unanswered, add_arguments, understood
from proxy.terminal.saying import say
from proxy.terminal.view import View

OK, FAILED = 0, 1
# Below it the frames say nothing new: the proxy takes a sample a second.
MIN_INTERVAL_S = 0.1
# A pipe has no height; in so many lines the sentence is whole, and the journal has more than its last two events.
PLAIN_LINES = 40
# What asking again does not mend.
_REFUSED = (401, 403)
MISSING = (
    "crossover top draws with rich, which is not installed; mend: pip install 'crossover-proxy[top]', in a checkout "
    "run scripts/top, or look at plain frames: crossover top | cat"
)

Frames = Iterator[tuple[View, str]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_arguments(parser)
    parser.add_argument("--interval", type=_interval, default=1.0, metavar="S", help="seconds between two looks (1)")
    parser.add_argument("--count", type=int, metavar="N", help="end after so many frames; default: when you stop it")


def run(options: argparse.Namespace) -> int:
    """Show frames until Ctrl-C, SIGTERM, or the reader has gone. Returns 1 where the proxy does not answer at the
    start, or refuses to."""
    try:
        with _leaving():
            port = Port(options.url, options.token_file, options.ca)
            frames = _frames(port, options.interval, options.count)
            return _live(frames) if _is_screen() else _plain(frames)
    except Unanswered as error:
        say(f"nothing to show: {error}", sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return OK


def _interval(text: str) -> float:
    value = float(text)
    if not MIN_INTERVAL_S <= value <= 3600:
        raise argparse.ArgumentTypeError(f"from {MIN_INTERVAL_S} to 3600 seconds")
    return value


@contextlib.contextmanager
def _leaving() -> Iterator[None]:
    """While it lasts other signals that end it do so as Ctrl-C does: the terminal is left as it was."""

    def leave(number: int, at: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_screen() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")


def _frames(port: Port, interval_s: float, count: int | None) -> Frames:
    """Views, the last good one with its trouble where there is no new one. Raises Unanswered at the first look."""
    with contextlib.closing(Following(port, interval_s)) as following:
        shown, view = 0, following.look()
        trouble = ""
        while True:
            yield view, trouble
            shown += 1
            if count is not None and shown >= count:
                return
            time.sleep(interval_s)
            try:
                view, trouble = following.look(), ""
            except Unanswered as error:
                if error.status in _REFUSED:
                    raise
                trouble = f"NO ANSWER, what follows is old: {error}"


def _blocks() -> str:
    """What the terminal's encoding can say."""
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII_BLOCKS
    return BLOCKS


def _plain(frames: Frames) -> int:
    width, blocks = shutil.get_terminal_size().columns, _blocks()
    for view, trouble in frames:
        lines = _drawn(view, width, PLAIN_LINES, trouble, blocks)
        if not say("\n".join(text_of(line) for line in lines) + "\n"):
            break
    return OK


def _drawn(view: View, width: int, height: int, trouble: str, blocks: str) -> list[Line]:
    with understood(view.url):
        return frame(view, width, height, trouble=trouble, blocks=blocks)


def text_of(line: Line) -> str:
    """A line without its styles."""
    return "".join(text for text, _ in line).rstrip()


def _live(frames: Frames) -> int:
    if find_spec("rich") is None:
        say(MISSING, sys.stderr)
        return FAILED
    # Before the screen is taken, so that what is wrong stays to be read.
    view, trouble = next(frames)
    from proxy.terminal.live import screen  # noqa: PLC0415 - not for those who read plain frames

    blocks = _blocks()
    with screen() as (console, draw):
        draw(_drawn(view, *console.size, trouble, blocks))
        for view, trouble in frames:
            draw(_drawn(view, *console.size, trouble, blocks))
    return OK
