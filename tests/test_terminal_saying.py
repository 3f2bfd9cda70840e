"""Words of the commands to outputs that are closed or full: a code and a sentence, and never a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest
from fakes.operators import operators
from fakes.watched import WATCHED

ROOT = Path(__file__).parents[1]
NOBODY = "http://127.0.0.1:1"
FULL = "standard output cannot be written: No space left on device\n"
COMMANDS = [["status"], ["status", "--json"], ["top", "--count", "2", "--interval", "0.1"]]


def ended(redirection: str, *command: str) -> tuple[int, str, str]:
    """The exit code of a command with an output like this, and what came to the other ones."""
    script = f'exec "$0" -m proxy "$@" {redirection}'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_behind_the_output_is_told(command: list[str]) -> None:
    with operators(**WATCHED) as port:
        assert ended(">/dev/full", *command, port.url) == (1, "", FULL)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_that_was_closed_before_the_start_is_no_failure(command: list[str]) -> None:
    with operators(**WATCHED) as port:
        assert ended(">&-", *command, port.url) == (0, "", "")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize("command", [["status"], ["top"], ["explain", "an-id"]])
def test_what_is_wrong_is_never_among_the_answers(command: list[str], redirection: str) -> None:
    assert ended(redirection, *command, NOBODY) == (1, "", "")
