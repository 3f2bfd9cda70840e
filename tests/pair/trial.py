"""One trial from idle engines to idle engines: the proxy where there is one, the clients, and what was left behind."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.clocks import cpu_s
from bench.processes import PYTHON
from pair.arms import ADMIN_PORT, Trial
from pair.arrivals import Step
from pair.drive import Job
from pair.figures import Request, request_of
from pair.instances import NotUp, ask, ended, sequences
from pair.options import Options

_UP_WITHIN_S = 30.0
_IDLE_WITHIN_S = 30.0
_LOOK_S = 0.1
# All that a journal keeps.
_EVENTS = 500


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a trial gave. `left` are sequences in flight when all clients had ended and engines had had time to notice:
    of each engine by its own word, and by the proxy's count. `proxy_cpu` is the share of a core that the proxy had.
    What is its own word is None without a proxy; `began_at_s` is the first step's beginning in unix seconds, as its
    journal and history have them, None where no request was sent."""

    requests: tuple[Request, ...]
    lines: tuple[str, ...]
    left: Mapping[str, int]
    idle_after_s: float
    proxy_cpu: float | None
    status: Mapping[str, Any] | None
    curves: Mapping[str, Any] | None
    journal: Mapping[str, Any] | None
    history: Mapping[str, Any] | None
    began_at_s: float | None


def run(trial: Trial, options: Options, steps: Sequence[Step], model: str, folder: Path) -> Outcome:
    """Make one trial. Raises NotUp where the proxy does not come up, or its engines are not idle before."""
    _until_idle(trial, ())
    with ExitStack() as stack:
        proxy = stack.enter_context(_proxy(trial, folder)) if trial.config else None
        clients = [stack.enter_context(_client()) for _ in range(options.clients)]
        before_s = cpu_s([proxy.pid]) if proxy is not None else 0.0
        began_s = time.monotonic()
        lines = tuple(_driven(clients, trial, options, steps, model))
        length_s = time.monotonic() - began_s
        share = (cpu_s([proxy.pid]) - before_s) / length_s if proxy is not None else None
        ended_s = time.monotonic()
        left = _until_idle(trial, (options.port + ADMIN_PORT,) if proxy is not None else ())
        status, curves, journal, history = (
            json.loads(ask(_admin(options.port + ADMIN_PORT, what))[1] or b"{}") if proxy is not None else None
            for what in ("status", "curves", f"journal?limit={_EVENTS}", "history")
        )
        requests = tuple(request_of(json.loads(line)) for line in lines)
        idle_s = time.monotonic() - ended_s
        began_at_s = time.time() - time.monotonic() + requests[0].begin_s if requests else None
        return Outcome(requests, lines, left, idle_s, share, status, curves, journal, history, began_at_s)


@contextmanager
def _proxy(trial: Trial, folder: Path) -> "Iterator[subprocess.Popen[bytes]]":
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / f"{trial.key}.yaml"
    config.write_text(json.dumps(trial.config, indent=1))
    with (folder / f"{trial.key}.log").open("wb") as log:
        process = subprocess.Popen(
            [*PYTHON, "-m", "proxy", "serve", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        ends_s = time.monotonic() + _UP_WITHIN_S
        while ask(f"{trial.url}/ready")[0] != 200:
            if process.poll() is not None or time.monotonic() > ends_s:
                raise NotUp(f"the proxy did not come up; see {folder / trial.key}.log")
            time.sleep(_LOOK_S)  # sleeps: what is up has to be asked for
        yield process
    finally:
        ended(process)


@contextmanager
def _client() -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen([*PYTHON, "-m", "pair.drive"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


def _driven(
    clients: "Sequence[subprocess.Popen[str]]", trial: Trial, options: Options, steps: Sequence[Step], model: str
) -> Iterator[str]:
    """The lines of all requests; all client processes begin at the same instant."""
    for part, client in enumerate(clients):
        job = Job(
            url=trial.url,
            model=model,
            steps=tuple(steps),
            tokens=options.tokens,
            seed=options.seed,
            turns=options.turns,
            nonce=f"{trial.key}-{options.seed}",
            prompts=options.prompts,
            drain_s=options.drain_s,
            part=part,
            parts=len(clients),
        )
        _tell(client, json.dumps(asdict(job)))
    for client in clients:
        assert client.stdout is not None
        if client.stdout.readline() != "ready\n":
            raise NotUp("a client process did not start")
    begin_s = time.monotonic() + 0.2
    for client in clients:
        _tell(client, repr(begin_s))
    for client in clients:
        assert client.stdout is not None
        yield from client.stdout.read().splitlines()


def _tell(client: "subprocess.Popen[str]", line: str) -> None:
    assert client.stdin is not None
    client.stdin.write(f"{line}\n")
    client.stdin.flush()


def _until_idle(trial: Trial, admin_ports: Sequence[int]) -> dict[str, int]:
    """Wait until nothing is in flight; what is left after that, by name."""
    ends_s = time.monotonic() + _IDLE_WITHIN_S
    while True:
        left = {one.name: sequences(one.url) for one in trial.engines}
        for port in admin_ports:
            said = json.loads(ask(_admin(port, "status"))[1] or b"{}")
            # A proxy that does not answer has lost its count.
            left["proxy"] = said.get("waiting", -1) + sum(one["in_flight"] for one in said.get("backends", ()))
        if not any(left.values()) or time.monotonic() > ends_s:
            return left
        time.sleep(_LOOK_S)  # sleeps: what engines count has to be asked for


def _admin(port: int, what: str) -> str:
    return f"http://127.0.0.1:{port}/{what}"
