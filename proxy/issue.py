"""`crossover key NAME`: a fresh key for one client, told once, and the line that lets it in. Nothing is stored.

What a keys file holds is in protocol/client_keys.py.
"""

import secrets
import sys

from proxy.protocol.client_keys import PREFIX, RESERVED, line_for

OK, FAILED = 0, 1
# Nobody guesses 256 random bits, so a plain SHA-256 of them may lie in a file.
KEY_BYTES = 32


def run(name: str) -> int:
    """Print a key and its line on standard output, what to do with them beside it; the exit code."""
    key = PREFIX + secrets.token_urlsafe(KEY_BYTES)
    try:
        line = line_for(name, key)
    except ValueError:
        _tell(_fault(name))
        return FAILED
    _tell(f"The key, for {name} alone; it is told this once and kept nowhere:")
    print(key, flush=True)  # noqa: T201 - what the command is for
    _tell("The line for the file that listen.api_keys_file names:")
    print(line, flush=True)  # noqa: T201
    return OK


def _fault(name: str) -> str:
    if name in RESERVED:
        return f"NAME must not be {name}, which metrics say where no client is known; mend: choose another"
    return (
        "NAME is a lower-case letter or digit, then up to 31 of these, `-` and `_`; "
        "mend: choose such a name, for example `crossover key team-a`"
    )


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
