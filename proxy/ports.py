"""Ports on command lines."""

import argparse

LAST = 65535


def port_number(text: str) -> int:
    """A port of this machine, 0 for a free one. A kernel would take a number beyond the last for what is left of it by
    division: another port than was asked. Raises ArgumentTypeError, with the range and the mend."""
    number = int(text) if text.isascii() and text.isdecimal() else LAST + 1
    if number > LAST:
        mend = f"mend: write one from 0 (a free one) to {LAST}, such as 8000"
        raise argparse.ArgumentTypeError(f"{text!r} is no port; {mend}")
    return number
