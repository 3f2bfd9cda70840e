"""What Python does and says in a process of its own, for what holds where nothing else was loaded. It ends.

Not here: the proxy as it serves, in process.py and own_process.py.
"""

import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

ROOT = Path(__file__).parents[2]
# Such a process takes a second or two of a quiet machine.
WITHIN_S = 100.0


def ran(*words: object, stdout: Any = PIPE, **more: Any) -> "subprocess.CompletedProcess[str]":
    """Python with these words, in the tree. AssertionError where it hangs, with what each of its threads was at."""
    command = [sys.executable, "-X", "faulthandler", *map(str, words)]
    with subprocess.Popen(command, cwd=ROOT, stdout=stdout, stderr=PIPE, text=True, **more) as process:
        try:
            out, err = process.communicate(timeout=WITHIN_S)
        except subprocess.TimeoutExpired as hangs:
            process.send_signal(signal.SIGABRT)
            raise AssertionError(process.communicate()[1]) from hangs
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def printed(code: str, *words: object) -> str:
    """What a text of Python prints, which ends well."""
    ended = ran("-c", code, *words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
