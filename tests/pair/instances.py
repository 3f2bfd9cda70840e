"""The instances of a run: what each is started with, starting them, waiting until all serve, and ending them."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pair.options import ADAPTIVE, BASELINE, BESIDE, SPECULATIVE, Options

from proxy.model import Placement
from proxy.protocol.engines import parse_loads

NEEDED = (SPECULATIVE, BASELINE)
"""Without these there is nothing to compare; a run goes on without the others and says so."""

_LOOK_S = 0.5
_ASK_S = 5.0
# An engine that drains lets its answers end; what is left after this is killed with all its workers.
_END_WITHIN_S = 20.0
# The acceptance that drafts on random weights do not have (SGLang's own switch for benchmarks).
_ACCEPT = "SGLANG_SIMULATE_ACC_LEN"


class NotUp(Exception):
    """An instance that a run needs did not come up."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One engine: its name, address and GPU, the command that starts it, and what is set in its environment. One that
    runs already has neither of these."""

    name: str
    url: str
    gpu: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]

    @property
    def line(self) -> str:
        """How it is started, for a shell."""
        if not self.command:
            return f"was running at {self.url}"
        return " ".join((*(f"{name}={value}" for name, value in self.environment), *self.command))


def instances(options: Options) -> tuple[Instance, ...]:
    """Those that the arms of a run need."""
    ours, theirs = options.gpus[0], options.gpus[-1]
    draft = ("--speculative-draft-model-path", options.draft) if options.draft else ()
    accepts = options.accepts or (None, None)
    speculative = (*options.speculative_flags, *draft)
    found = [
        _instance(options, SPECULATIVE, 0, ours, flags=speculative, accept=accepts[0]),
        _instance(options, BASELINE, 1, theirs),
    ]
    if ADAPTIVE in options.arms:
        found.append(
            _instance(options, ADAPTIVE, 2, theirs, flags=(*options.adaptive_flags, *draft), accept=accepts[1])
        )
    if ours != theirs and Placement.SHARED in options.placements:
        found.append(_instance(options, BESIDE, 3, ours))
    return tuple(found)


def _instance(
    options: Options, name: str, place: int, gpu: str, *, flags: Sequence[str] = (), accept: float | None = None
) -> Instance:
    if name in options.running:
        return Instance(name, options.running[name], gpu, (), ())
    port = options.port + place
    command = (*options.engine, "--model-path", options.model, *options.flags, *flags)
    environment = [("CUDA_VISIBLE_DEVICES", gpu), *([(_ACCEPT, f"{accept:g}")] if accept is not None else [])]
    command = (*command, "--host", "127.0.0.1", "--port", str(port))
    return Instance(name, f"http://127.0.0.1:{port}", gpu, command, tuple(environment))


@contextmanager
def started(wanted: Sequence[Instance], logs: Path, within_s: float) -> Iterator[dict[str, Instance]]:
    """Those that serve, by name; all are ended when the block ends. Raises NotUp where a needed one does not serve."""
    with ExitStack() as stack:
        running = {
            one.name: stack.enter_context(_started(one, logs / f"{one.name}.log")) for one in wanted if one.command
        }
        up = dict(_awaited(wanted, running, within_s))
        missing = [one.name for one in wanted if one.name not in up]
        if needed := [name for name in missing if name in NEEDED]:
            raise NotUp(f"not up within {within_s:g} s, or died: {', '.join(needed)}; see {logs}")
        for name in missing:
            print(f"left out: {name} did not come up; see {logs / name}.log", flush=True)
        yield up


def _awaited(
    wanted: Sequence[Instance], running: "dict[str, subprocess.Popen[bytes]]", within_s: float
) -> Iterator[tuple[str, Instance]]:
    began_s, left = time.monotonic(), list(wanted)
    while left and time.monotonic() - began_s < within_s:
        for one in list(left):
            died = one.name in running and running[one.name].poll() is not None
            if died or serves(one.url):
                left.remove(one)
                after = f"after {time.monotonic() - began_s:.0f} s"
                print(f"{one.name} {'DIED' if died else 'serves'} {after}", flush=True)
                if not died:
                    yield one.name, one
        time.sleep(_LOOK_S)  # sleeps: engines of other makers tell nobody that they are up


@contextmanager
def _started(one: Instance, log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    port = int(one.url.rpartition(":")[2])
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            # Else that one would be measured in place of ours.
            raise NotUp(f"something listens on port {port} already; mend: end it, or choose another --port")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        process = subprocess.Popen(
            one.command,
            env={**os.environ, **dict(one.environment)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            # A group of its own: engines have workers, and all of them have to go.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        ended(process)


def ended(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its group: asked first, then made to."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_WITHIN_S)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def ask(url: str) -> tuple[int, bytes]:
    """Status and body of a GET; status 0 where nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=_ASK_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""
    except OSError:
        return 0, b""


def serves(url: str) -> bool:
    """Whether an engine answers that it is well."""
    return ask(f"{url}/health")[0] == 200


def model_of(url: str) -> str:
    """The model that an engine lists first."""
    name: str = json.loads(ask(f"{url}/v1/models")[1])["data"][0]["id"]
    return name


def facts_of(url: str) -> dict[str, Any]:
    """What an engine says of itself that bears on speed."""
    status, body = ask(f"{url}/server_info")
    said = json.loads(body) if status == 200 else {}
    names = (
        *("version", "max_running_requests", "max_total_num_tokens", "attention_backend", "sampling_backend"),
        *("speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"),
        *("speculative_adaptive", "disable_radix_cache", "dtype", "tp_size", "load_format", "context_length"),
    )
    told = {name: said[name] for name in names if name in said}
    states = said.get("internal_states")
    if isinstance(states, list) and states and "avg_spec_accept_length" in states[0]:
        told["avg_spec_accept_length"] = states[0]["avg_spec_accept_length"]
    return told


def sequences(url: str) -> int:
    """What an engine runs and has waiting, by its own word; 0 where it does not say."""
    load = parse_loads(ask(f"{url}/v1/loads")[1])
    return 0 if load is None else load.running + load.waiting
