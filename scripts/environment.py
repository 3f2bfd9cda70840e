"""Makes .venv at the top of the tree from one of the locks in requirements/, or brings it up to the lock.

Usage: environment.py run|calibrate|otel|top|dev|fuzz|real|clients|peers|load; fuzzing has .venv-fuzz for itself, since
it needs a newer Python, and real engines, clients, peers and load tools have theirs, since nothing of theirs belongs
beside the proxy. Runs on a bare Python 3.11+, so it imports the standard library alone. Deciding that .venv is current
is environment.sh, which costs no interpreter.
"""

import fcntl
import filecmp
import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Kinds that have an environment of their own, `.venv-KIND`.
APART = ("fuzz", "real", "clients", "peers", "load")
HOME = ROOT / (f".venv-{sys.argv[1]}" if sys.argv[1:] in [[kind] for kind in APART] else ".venv")
PYTHON = HOME / "bin" / "python"

# Held while .venv is being made. Not `.lock`: uv takes a lock by that name on the environment it installs into.
HELD = HOME / ".setting-up"

# Each lock holds all of the one before in the same versions, so whoever has it needs no second install for that.
STAMPS = {
    "run": ("run",),
    "calibrate": ("calibrate", "run"),
    "otel": ("otel", "run"),
    "top": ("top", "run"),
    "dev": ("dev", "calibrate", "otel", "top", "run"),
    "fuzz": ("fuzz",),
    "real": ("real",),
    "clients": ("clients",),
    "peers": ("peers",),
    "load": ("load",),
}

# uv trusts its own list of authorities unless told otherwise; the machine's is the one that pip and the operator know.
# No repeats, since pip is the second try.
UV_SETTINGS = {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1", "UV_HTTP_RETRIES": "0"}

LAUNCHER = """#!/bin/sh
exec "$(dirname -- "$0")/python" -P -m proxy "$@"
"""


def main() -> int:
    """Returns the exit code: 0 when .venv fits the lock, 1 when it could not be made."""
    kind = sys.argv[1]
    HOME.mkdir(exist_ok=True)
    with HELD.open("w") as held:
        # The kernel frees this lock however its holder ends, so a killed install never blocks the next one.
        fcntl.flock(held, fcntl.LOCK_EX)
        if is_current(kind):
            return 0
        return make(kind)


def is_current(kind: str) -> bool:
    """Whether .venv holds what the lock says; another script may have made it while this one waited."""
    stamp = HOME / f".{kind}.lock"
    return PYTHON.exists() and stamp.exists() and filecmp.cmp(lock_file(kind), stamp, shallow=False)


def lock_file(kind: str) -> Path:
    """The lock of one kind, as the usage above names them."""
    return ROOT / "requirements" / f"{kind}.lock"


def wanted(kind: str) -> list[str]:
    """What an installer is told: the lock and nothing but the lock. That of real engines leaves out what they name as
    needed and do not need here; a compiler would run for minutes."""
    return [*(["--no-deps"] if kind == "real" else []), "--require-hashes", "-r", str(lock_file(kind))]


def make(kind: str) -> int:
    """Creates .venv when it is missing or broken, installs the lock, and writes the stamps last of all."""
    began_s = time.monotonic()
    say(f"setting up {HOME.name} for {kind} ({sys.executable}, Python {sys.version.split()[0]})")
    uv = working_uv()
    if not runs(PYTHON):
        empty(HOME)
        venv.create(HOME, symlinks=True, with_pip=False)
    if not (uv and installed_by_uv(uv, kind)) and not installed_by_pip(kind):
        say(f"setting up {HOME.name} failed: the lines above say why. Mend that and try again; {HOME} may be removed.")
        return 1
    link_project()
    for stamp in STAMPS[kind]:
        shutil.copyfile(lock_file(stamp), HOME / f".{stamp}.lock")
    say(f"ready after {time.monotonic() - began_s:.0f} s")
    return 0


def working_uv() -> str | None:
    """uv's path if it is there and starts: a version manager's shim may be on PATH with nothing behind it."""
    uv = shutil.which("uv")
    return uv if uv and subprocess.run([uv, "--version"], capture_output=True, check=False).returncode == 0 else None


def runs(python: Path) -> bool:
    """Whether .venv's interpreter still starts; it does not once the Python it was made from has gone."""
    return python.exists() and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def empty(folder: Path) -> None:
    """Removes all that is in the folder but the lock that is being held."""
    for child in folder.iterdir():
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        elif child != HELD:
            child.unlink()


def installed_by_uv(uv: str, kind: str) -> bool:
    """Whether uv could install the lock. Where it cannot (it does not read pip's settings), pip is tried."""
    command = [uv, "pip", "install", "--quiet", "--python", str(PYTHON), *wanted(kind)]
    return subprocess.run(command, env=UV_SETTINGS | os.environ, check=False).returncode == 0


def installed_by_pip(kind: str) -> bool:
    """Whether pip could install the lock, after it has been put into .venv itself."""
    pip = [str(PYTHON), "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode != 0:
        seeded = subprocess.run([str(PYTHON), "-m", "ensurepip"], capture_output=True, check=False)
        if seeded.returncode != 0:
            say("this Python has no ensurepip, so .venv has no pip (Debian and Ubuntu: apt install python3-venv)")
            return False
    # As uv does it: Python compiles what is imported, on its first import, and of most that is a small part.
    options = ["--disable-pip-version-check", "--no-input", "--quiet", "--no-compile", *wanted(kind)]
    return subprocess.run([*pip, "install", *options], check=False).returncode == 0


def link_project() -> None:
    """Puts the tree on .venv's import path and a `crossover` command beside its python.

    Both are relative to .venv, so a tree that is moved keeps working; no build and no build tool is needed.
    """
    for packages in HOME.glob("lib/python3*/site-packages"):
        (packages / "crossover.pth").write_text(os.path.relpath(ROOT, packages) + "\n", encoding="utf-8")
    launcher = HOME / "bin" / "crossover"
    launcher.write_text(LAUNCHER, encoding="utf-8")
    launcher.chmod(0o755)


def say(line: str) -> None:
    """Tells the person who waits; on stderr, so that a script's own output stays clean."""
    print(f"crossover: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
