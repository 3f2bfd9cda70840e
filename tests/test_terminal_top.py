"""`crossover top` in a real terminal (a pty) and in a pipe: it draws, goes on without its proxy, and ends clean."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.operators import STATUS, Operators, operators
from fakes.watched import WATCHED

from proxy.__main__ import main
from proxy.terminal import top

ROOT = Path(__file__).parents[1]
WITHIN_S = 60.0
ENTER, LEAVE, SHOW_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][;m]")
# Takes the pty as its own terminal, so that a Ctrl-C typed there is a signal, and becomes the command.
IN_CHARGE = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, '-m', 'proxy', *sys.argv[1:]])"
)


class Terminal:
    """A pty with the command in it, which tells it of its end by a signal."""

    BEGIN: tuple[str, ...] = ("-c", IN_CHARGE)

    def __init__(self, url: str, rows: int, columns: int, *options: str, **environment: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.seen = ""
        self.process = subprocess.Popen(
            [sys.executable, *self.BEGIN, "top", url, "--interval", "0.1", *options],
            cwd=ROOT,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", **environment},
            start_new_session=True,
        )
        os.close(slave)

    def until(self, holds: Callable[[str], object]) -> str:
        """Read on until what was seen so far holds."""
        ends_at_s = time.monotonic() + WITHIN_S
        while not holds(self.seen):
            assert time.monotonic() < ends_at_s, self.seen
            if not self._read():
                assert holds(self.seen), self.seen
                break
        return self.seen

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def ended(self) -> int:
        """Its exit code, with all that it has said read."""
        ends_at_s = time.monotonic() + WITHIN_S
        while self._read() and time.monotonic() < ends_at_s:
            pass
        return self.process.wait(WITHIN_S)

    def _read(self) -> bool:
        """Some more; False once the other end is closed."""
        ready, _, _ = select.select([self._master], [], [], 0.5)
        if not ready:
            return self.process.poll() is None
        try:
            piece = os.read(self._master, 65536)
        except OSError:  # the last holder of the other end has gone
            return False
        self.seen += piece.decode(errors="replace")
        return bool(piece)

    def vanish(self) -> None:
        """End the terminal, and not what runs in it."""
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._master >= 0:
            self.vanish()


class Borrowed(Terminal):
    """One that is not the command's own, as with `setsid` or `docker exec -t`: no signal tells of its end."""

    BEGIN = ("-m", "proxy")


@contextlib.contextmanager
def terminal(url: str, rows: int = 24, columns: int = 80, *options: str, **environment: str) -> Iterator[Terminal]:
    opened = Terminal(url, rows, columns, *options, **environment)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def port() -> Iterator[Operators]:
    with operators(**WATCHED) as scene:
        yield scene


def require_restored(seen: str) -> None:
    assert seen.count(ENTER) == seen.count(LEAVE) == 1
    after = seen.rpartition(LEAVE)[2]
    assert SHOW_CURSOR in seen and "speculative" not in after and "Traceback" not in seen


def test_it_draws_in_place_until_ctrl_c_and_leaves_the_terminal_as_it_was(port: Operators) -> None:
    with terminal(port.url) as here:
        here.until(lambda seen: seen.count("75 % of 240 to speculative") >= 3)
        assert COLOUR.search(here.seen)
        here.type(b"\x03")
        assert here.ended() == 0
        require_restored(here.seen)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_it_leaves_the_terminal_as_it_was(port: Operators, number: signal.Signals) -> None:
    with terminal(port.url) as here:
        here.until(lambda seen: "75 % of 240" in seen)
        here.process.send_signal(number)
        assert here.ended() == 0
        require_restored(here.seen)


def test_signals_that_follow_the_first_do_not_disturb_the_way_out(port: Operators) -> None:
    with terminal(port.url) as here:
        here.until(lambda seen: "75 % of 240" in seen)
        for number in [signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP] * 10:
            here.process.send_signal(number)
            time.sleep(0.002)  # sleeps: signals of one number that come at once are one
        assert here.ended() == 0
        require_restored(here.seen)


def test_a_terminal_that_vanishes_without_a_signal_ends_it(port: Operators) -> None:
    here = Borrowed(port.url, 24, 80)
    try:
        here.until(lambda seen: "75 % of 240" in seen)
        here.vanish()
        assert here.process.wait(WITHIN_S) == 0
    finally:
        here.close()


def test_a_frame_fills_24_lines_of_80_and_scrolls_nothing(port: Operators) -> None:
    with terminal(port.url, 24, 80, "--count", "1") as here:
        assert here.ended() == 0
        drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", here.seen.partition(ENTER)[2].partition(LEAVE)[0])
        lines = drawn.replace("\r\n", "\n").split("\n")
        assert len(lines) <= 24 and max(map(len, lines)) <= 80
        assert any("journal" in line for line in lines)


def test_no_color_is_drawn_in_place_without_colours(port: Operators) -> None:
    with terminal(port.url, 24, 80, "--count", "2", NO_COLOR="1") as here:
        assert here.ended() == 0
        assert ENTER in here.seen and not COLOUR.search(here.seen)
        require_restored(here.seen)


def test_a_dumb_terminal_gets_plain_frames_one_after_the_other(port: Operators) -> None:
    with terminal(port.url, 24, 80, "--count", "2", TERM="dumb") as here:
        assert here.ended() == 0
        assert "\x1b" not in here.seen and here.seen.count("75 % of 240") == 2


def test_a_terminal_without_blocks_gets_none(port: Operators) -> None:
    with terminal(port.url, 24, 80, "--count", "1", TERM="dumb", LANG="C", PYTHONIOENCODING="ascii") as here:
        assert here.ended() == 0
        assert here.seen.isascii() and "####" in here.seen


def test_it_goes_on_when_the_proxy_is_away_and_says_that_what_it_shows_is_old(port: Operators) -> None:
    whole = port.answers["/status"]
    with terminal(port.url) as here:
        here.until(lambda seen: "75 % of 240" in seen)
        port.answers["/status"] = (503, {"error": "gone"})
        here.until(lambda seen: "NO ANSWER" in seen)
        port.answers["/status"] = {**whole, "version": "9.9.9"}
        here.until(lambda seen: "9.9.9" in seen)
        here.type(b"\x03")
        assert here.ended() == 0
        require_restored(here.seen)


def test_a_token_that_is_no_longer_right_ends_it_and_is_told_on_the_terminal_as_it_was(port: Operators) -> None:
    with terminal(port.url) as here:
        here.until(lambda seen: "75 % of 240" in seen)
        port.answers["/status"] = (401, {"error": "send the token"})
        assert here.ended() == 1
        assert "nothing to show: " in here.seen.rpartition(LEAVE)[2]


def test_a_pipe_gets_plain_frames(port: Operators, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", port.url, "--interval", "0.1", "--count", "3"]) == 0
    said = capsys.readouterr().out
    assert said.count("75 % of 240") == 3 and "\x1b" not in said
    assert [path for path in port.asked if path == "/status"] == ["/status"] * 3


def test_a_pipe_gets_the_whole_sentence_and_more_than_the_last_events(
    port: Operators, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "Each request goes where by the measured speeds it delays all of them least. " * 3 + "The end."
    port.answers["/status"] = {**STATUS, "sentence": sentence}
    assert main(["top", port.url, "--interval", "0.1", "--count", "1"]) == 0
    said = capsys.readouterr().out
    assert sentence in " ".join(said.split())
    assert sum("Event" in line for line in said.splitlines()) > 4


def test_a_reader_that_has_seen_enough_ends_it(port: Operators) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        command = [sys.executable, "-m", "proxy", "top", port.url, "--interval", "0.1"]
        ended = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, check=False, timeout=WITHIN_S, cwd=ROOT)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_nobody_there_is_told_before_the_screen_is_taken() -> None:
    with terminal("http://127.0.0.1:1") as here:
        assert here.ended() == 1
        assert ENTER not in here.seen and "is the proxy running" in here.seen


def test_a_terminal_without_rich_is_told_how_to_get_it(
    port: Operators, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top, "find_spec", lambda _: None)
    monkeypatch.setattr(top, "_is_screen", lambda: True)
    assert main(["top", port.url]) == 1
    assert "pip install 'crossover-proxy[top]'" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "-1", "nan", "often", "1e9"])
def test_an_interval_that_means_nothing_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["top", "--interval", value])
    assert ended.value.code == 2
    assert "--interval" in capsys.readouterr().err


def test_handlers_of_signals_are_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert main(["top", "http://127.0.0.1:1"]) == 1
    assert signal.getsignal(signal.SIGTERM) is before
