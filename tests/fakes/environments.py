"""Environments of their own that some tests need: made on first use, and a reason to skip where they cannot be had."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
# What installers say where an index, or a wheel for this machine, cannot be had; any other failure is one.
UNREACHABLE = re.compile(
    r"error sending request|Failed to fetch|client error|dns error|No matching distribution|ConnectionError|"
    r"NewConnectionError|no wheels? with|doesn't have a source distribution|timed out",
    re.IGNORECASE,
)
# Two installs of 130 MB, the second by pip where uv failed, on a busy machine; less than faulthandler_timeout.
INSTALL_WITHIN_S = 500


def installed(kind: str) -> Path:
    """The folder of an environment, made from its lock in requirements/: once, though several workers may ask."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "environment.py", kind],
        capture_output=True,
        text=True,
        timeout=INSTALL_WITHIN_S,
        check=False,
    )
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"the packages of requirements/{kind}.lock cannot be had here")
    assert done.returncode == 0, done.stderr
    return ROOT / f".venv-{kind}"
