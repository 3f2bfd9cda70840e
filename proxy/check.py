"""`crossover check` and `crossover status`: what a start would do, and what a running proxy does. Nothing is served."""

import argparse
import asyncio
import http.client
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from proxy import config
from proxy.config import InvalidConfig, Settings
from proxy.config.key_files import read_key
from proxy.dispatch import Desk
from proxy.model import ROLES
from proxy.plan import kinds, line_rules, plan
from proxy.protocol.agreement import disagreements
from proxy.state.backend import Backend
from proxy.wire.pair import Pair

OK, FAILED = 0, 1
ASK_WITHIN_S = 10.0
TOKEN_VARIABLE = "CROSSOVER_ADMIN_TOKEN"
# What the operators' port says with its 401, and nothing else does: the clients' port has one too.
OPERATORS_MARK = 'Basic realm="crossover"'
TOKEN_MEND = f"it asks for its admin.token; mend: give --token-file, or set {TOKEN_VARIABLE}"
ADMIN_MEND = "is the proxy running, and is this its admin port?"


def run(options: argparse.Namespace) -> int:
    """Check a configuration: every problem at once, or the settings in force and what the backends say."""
    try:
        settings = config.load(options.config, os.environ)
    except InvalidConfig as error:
        _say(error.message, sys.stderr)
        return FAILED
    _say(config.effective(settings).rstrip())
    for sentence in config.sentences(settings.sources.curves):
        _say(f"# verdict: {sentence}")
    for caution in config.cautions(settings):
        _say(f"# warning: {caution}")
    if not options.offline:
        for line in asyncio.run(_look(settings)):
            _say(f"# {line}")
    return OK


async def _look(settings: Settings) -> Iterable[str]:
    desk = Desk(plan(settings), asyncio.get_running_loop().time)
    pair = Pair(desk, lambda _: None)
    lines = pair.connect(line_rules(settings))
    try:
        async with asyncio.timeout(ASK_WITHIN_S):
            await asyncio.gather(*(line.first_look() for line in lines))
    except TimeoutError:
        pass  # what did not answer is told below
    finally:
        await pair.stop()
    return _found(desk, settings)


def _found(desk: Desk, settings: Settings) -> list[str]:
    found = []
    for backend in desk.backends:
        found.append(f"{backend.role}: {_state(backend)}")
    speculative, baseline = (desk.backend(role).facts for role in ROLES)
    if speculative is not None and baseline is not None:
        found += [f"warning: {each.message}" for each in disagreements(speculative, baseline, kinds(settings))]
    running = {each.role: each.facts.version for each in desk.backends if each.facts is not None}
    found += [f"warning: {message}" for message in config.outdated(settings.sources.curves, running)]
    return found


def _state(backend: Backend) -> str:
    facts = backend.facts
    if facts is None and backend.load is None and not backend.health.up:
        return f"no answer from {backend.url}; the proxy would start without it"
    if facts is None:
        return f"{backend.url} answers but does not say what it runs; is `engine` right?"
    said = [f"{facts.model or 'a model without a name'} on {backend.url}"]
    if facts.version:
        said.append(f"version {facts.version}")
    if backend.max_in_flight:
        said.append(f"at most {backend.max_in_flight} sequences in flight")
    said.append(f"speculation {facts.speculative_algorithm}" if facts.speculative_algorithm else "no speculation told")
    if backend.health.up is False:
        said.append("not ready now")
    return ", ".join(said)


def status(url: str, token_file: Path | None = None, ca_file: Path | None = None) -> int:
    """Print the status JSON of a running proxy, whose token is in a file or in the environment where it has one, and
    which is trusted by `ca_file` where that is given."""
    try:
        token = os.environ.get(TOKEN_VARIABLE) if token_file is None else _token_in(token_file)
    except ValueError as error:
        _say(f"--token-file {error}", sys.stderr)
        return FAILED
    try:
        context = ssl.create_default_context(cafile=ca_file)
        # No proxies from the environment: the admin port is on this machine or one the operator named.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        asked = urllib.request.Request(f"{url.rstrip('/')}/status")
        if token:
            # Unredirected: whoever we are sent on to is not to have it.
            asked.add_unredirected_header("Authorization", f"Bearer {token}")
        with opener.open(asked, timeout=ASK_WITHIN_S) as answer:
            told = answer.read().decode()
    except urllib.error.HTTPError as error:
        return _no_status(url, error, _refusal_mend(error, token, token_file))
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        return _no_status(url, error, _mend(error))
    _say(told)
    return OK


def _token_in(file: Path) -> str:
    if not file.is_file():  # a pipe or a device could block for ever
        raise ValueError(f"names no regular file ({file}); mend: check the path, which counts from the current folder")
    return read_key(file)


def _refusal_mend(error: urllib.error.HTTPError, token: str | None, token_file: Path | None) -> str:
    if error.code != 401 or OPERATORS_MARK not in error.headers.get_all("WWW-Authenticate", []):
        return "is this its admin port? (admin.port, 29000 by default)"
    if not token:
        return TOKEN_MEND
    source = TOKEN_VARIABLE if token_file is None else f"--token-file {token_file}"
    return f"the token of {source} is wrong; mend: give the one of its admin.token"


def _no_status(url: str, error: Exception, mend: str) -> int:
    _say(f"no status from {url} ({error}); {mend}", sys.stderr)
    return FAILED


def _mend(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            "name the authority of its certificate (admin.tls.cert_file) by --ca FILE, and the host as it stands there"
        )
    if isinstance(reason, ssl.SSLError) and "CERTIFICATE_REQUIRED" in str(reason):
        return "admin.tls.client_ca_file asks for a certificate: use curl --cert FILE --key FILE"
    if isinstance(error, http.client.BadStatusLine | http.client.RemoteDisconnected | ConnectionError):
        return f"{ADMIN_MEND} With admin.tls the URL begins with https://"
    return ADMIN_MEND


def _say(text: str, stream: TextIO | None = None) -> None:
    stream = stream or sys.stdout
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        # Whoever reads has seen enough (`| head`). The flush at the exit would fail once more, and say so.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
