"""`crossover explain REQUEST_ID`: why one request went where it went and what came of it, in sentences.

The sentences are the proxy's own (telling/); here they are asked for and printed.
"""

import argparse
import shutil
from pathlib import Path
from urllib.parse import quote

from proxy.terminal.columns import labelled
from proxy.terminal.port import SCHEMES, Port, Unanswered, understood
from proxy.terminal.saying import complain, escaped, plain, say

OK, FAILED = 0, 1
NOT_FOUND = 404


def request_id(text: str) -> str:
    """What a request is asked for by. Raises ArgumentTypeError for the address, which stands behind it."""
    if text.lower().startswith(SCHEMES):
        raise argparse.ArgumentTypeError(
            f"{plain(text, 100)!r} is an address; write `crossover explain REQUEST_ID URL`"
        )
    return text


def run(options: argparse.Namespace) -> int:
    """Explain one request, by the options of the command line."""
    return explain(options.request_id, options.url, options.token_file, options.ca, as_json=options.json)


def explain(
    request_id: str, url: str, token_file: Path | None = None, ca_file: Path | None = None, *, as_json: bool = False
) -> int:
    """Print what a running proxy remembers of a request, by the x-request-id of its answer. Returns 0 where it does."""
    try:
        port = Port(url, token_file, ca_file)
        text = port.text(f"/decisions?request_id={quote(request_id, safe='')}")
        told = port.read(text)
        found = told.get("sentences")
        if not isinstance(found, list):
            raise Unanswered(f"{port.url} answers, but explains nothing; is it a Crossover of this version?")
        with understood(port.url):
            lines = page([str(each) for each in found], shutil.get_terminal_size().columns)
    except Unanswered as error:
        unknown = error.status == NOT_FOUND and error.told
        complain(plain(error.told, 1000) if unknown else f"not explained: {error}")
        return FAILED
    say(escaped(text) if as_json else "\n".join(lines))
    return OK


def page(sentences: list[str], width: int) -> list[str]:
    """A sentence to a line, or to as many as it needs."""
    return [line for each in sentences for line in labelled("-", plain(each, 1000), width, 2)]
