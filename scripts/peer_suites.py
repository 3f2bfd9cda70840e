"""Runs other projects' tests once against an engine and once through the proxy in front of it, and compares.

What such a test demands is its own project's business, and many want another model: only where the two runs differ has
the proxy changed something. Their sources come from the package index, checked by hash (requirements/peer_sources.txt).
Not here: the stand-ins that these tests run with (peer_plugin.py), and the engines (real_pair.py).

    peer_suites.py [SUITE ...] [--only WORDS] [--json FILE]        suites: llamacpp, vllm, sglang_router, heads
"""

import argparse
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from loopback import free_port, wait_for
from real_pair import MODEL_NAME, ROOT, Pair

OUT = ROOT / "out" / "peers"
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
SOURCES = ROOT / "requirements" / "peer_sources.txt"
# One test; the engine is a small model on the processor, and the machine may be busy.
TEST_WITHIN_S = 90
START_WITHIN_S = 30.0
# A test that came out otherwise is run so often again on both sides, to tell chance from the proxy.
AGAIN = 2
# Of one connection alone, or the proxy's own on every answer.
NOT_COMPARED = ("connection", "keep-alive", "transfer-encoding", "date", "x-request-id", "x-accel-buffering")


@dataclass(frozen=True, slots=True)
class Suite:
    """`requirement` names the source package, `below` the folder inside it where `files` are, of which `tests` run: all
    in them, or those with `words` in their names."""

    requirement: str
    below: str
    files: tuple[str, ...]
    tests: tuple[str, ...]
    words: str = ""


SUITES = {
    "llamacpp": Suite(
        "llama-cpp-python",
        "vendor/llama.cpp/tools/server/tests",
        ("conftest.py", "utils.py", "pytest.ini", "unit"),
        tuple(
            f"unit/test_{name}.py"
            for name in ("basic", "chat_completion", "stream", "compat_oai_responses", "security")
        ),
    ),
    "vllm": Suite(
        "vllm",
        "tests/entrypoints/openai",
        ("chat_completion/test_chat.py", "completion/test_completion.py"),
        ("test_chat.py", "test_completion.py"),
        # The rest look into vLLM's own classes, or have a small model on a processor speak for minutes.
        "single or no_logprobs or some_logprobs or too_many or streaming or stream_options or echo or invalid or "
        "custom_role or logits_bias or structured or tool or stop or parallel",
    ),
    "sglang_router": Suite(
        "sglang-router", "e2e_test/chat_completions", ("test_openai_server.py",), ("test_openai_server.py",)
    ),
}
HEADS = "heads"
Outcomes = dict[str, str]


@dataclass
class Compared:
    """What came of one suite on both sides; `chance` are tests that came out alike when they were run again."""

    direct: Outcomes
    proxied: Outcomes
    chance: list[str] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def different(self) -> dict[str, tuple[str, str]]:
        """By test: what came of it directly, and through the proxy."""
        both = self.direct.keys() | self.proxied.keys()
        pairs = {name: (self.direct.get(name, "-"), self.proxied.get(name, "-")) for name in sorted(both)}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


# ---------------------------------------------------------------- where the tests come from


def fetched(suite: Suite) -> Path:
    """The unpacked source of a suite. Raises RuntimeError where it cannot be had."""
    folder = OUT / "sources"
    pattern = f"pip-download-*/{suite.requirement}_*/{suite.below}"
    if not list(folder.glob(pattern)):
        folder.mkdir(parents=True, exist_ok=True)
        line = next(line for line in SOURCES.read_text().splitlines() if line.startswith(f"{suite.requirement}=="))
        wanted = folder / f"{suite.requirement}.txt"
        wanted.write_text(line + "\n")
        # To build them would take hours and a GPU's libraries: pip unpacks, finds no builder, and leaves what it has.
        how = ["--require-hashes", "--no-deps", "--no-binary", ":all:", "--no-clean", "--no-build-isolation"]
        done = subprocess.run(
            [str(PYTHON), "-m", "pip", "download", *how, "--dest", str(folder), "--requirement", str(wanted)],
            env=os.environ | {"TMPDIR": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        if not list(folder.glob(pattern)):
            raise RuntimeError(f"{suite.requirement} cannot be had:\n{done.stderr}")
    return next(iter(folder.glob(pattern)))


def version_of(suite: Suite) -> str:
    """The version that is asked for."""
    lines = SOURCES.read_text().splitlines()
    return next(line.split()[0].partition("==")[2] for line in lines if line.startswith(f"{suite.requirement}=="))


def laid_out(name: str, suite: Suite) -> Path:
    """A folder with the suite's files and nothing else, so that no conftest of theirs is read but one that is named."""
    source, folder = fetched(suite), OUT / "run" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for each in suite.files:
        copy = shutil.copytree if (source / each).is_dir() else shutil.copyfile
        copy(source / each, folder / Path(each).name)
    if not (folder / "pytest.ini").exists():
        (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


# ---------------------------------------------------------------- running them


def played(folder: Path, tests: list[str], port: int, only: str | None) -> Outcomes:
    """What came of the tests against a port."""
    written = folder / "outcomes.json"
    written.unlink(missing_ok=True)
    chosen = ["-k", only] if only else []
    how = ["-q", "--no-header", "--tb=no", "-p", "peer_plugin", "-p", "no:cacheprovider"]
    subprocess.run(
        [str(PYTHON), "-m", "pytest", *how, "--timeout", str(TEST_WITHIN_S), *chosen, *tests],
        cwd=folder,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join((str(ROOT / "scripts"), str(folder))), "OUTCOMES": str(written)}
        | {"TARGET": f"http://127.0.0.1:{port}", "TARGET_MODEL": MODEL_NAME, "OPENAI_API_KEY": "x"}
        | {"DEBUG_EXTERNAL": "1", "PORT": str(port)},
        stdout=sys.stderr,
        check=False,
    )
    told: Outcomes = json.loads(written.read_text()) if written.exists() else {}
    return told


def compared(name: str, ports: tuple[int, int], only: str | None) -> Compared:
    """A suite on both sides, and what differs run again."""
    began_s = time.monotonic()
    if name == HEADS:
        return Compared(heads(ports[0]), heads(ports[1]))
    suite = SUITES[name]
    folder = laid_out(name, suite)
    direct, proxied = (played(folder, list(suite.tests), port, only or suite.words) for port in ports)
    found = Compared(direct, proxied)
    for _ in range(AGAIN):
        if not (odd := list(found.different)):
            break
        direct, proxied = (played(folder, odd, port, None) for port in ports)
        alike = [test for test in odd if test in direct and direct[test] == proxied.get(test)]
        found.chance += alike
        for test in alike:
            found.direct[test] = found.proxied[test] = direct[test]
    found.took_s = time.monotonic() - began_s
    return found


def heads(port: int) -> Outcomes:
    """By request: the status, and the names of the answer's fields with their case and in their order."""
    said = {"model": MODEL_NAME, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "temperature": 0}
    asked: dict[str, tuple[str, str, object]] = {
        "models": ("GET", "/v1/models", None),
        "chat": ("POST", "/v1/chat/completions", said),
        "stream": ("POST", "/v1/chat/completions", said | {"stream": True}),
        "refused": ("POST", "/v1/chat/completions", {"messages": 1}),
        "completion": ("POST", "/completion", {"prompt": "Hi", "n_predict": 2}),
        "messages": ("POST", "/v1/messages", said),
        "tokenize": ("POST", "/tokenize", {"content": "Hi"}),
        "props": ("GET", "/props", None),
    }
    found: Outcomes = {}
    for name, (method, path, body) in asked.items():
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TEST_WITHIN_S)) as connection:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json", "Origin": "http://page"})
            answer = connection.getresponse()
            answer.read()
            names = [name for name, _ in answer.getheaders() if not _ours(name)]
        found[name] = f"{answer.status} {' '.join(names)}"
    return found


def _ours(name: str) -> bool:
    return name.lower() in NOT_COMPARED or name.lower().startswith("x-crossover-")


# ---------------------------------------------------------------- the two sides


@contextlib.contextmanager
def sides() -> Iterator[tuple[int, int]]:
    """The ports of an engine and of a proxy that sends everything to it."""
    with Pair("never") as pair, tempfile.TemporaryDirectory() as folder:
        direct, proxied, admin = int(pair.urls["baseline"].rpartition(":")[2]), free_port(), free_port()
        settings = pair.settings(
            listen={"host": "127.0.0.1", "port": proxied},
            admin={"port": admin},
            routing={"policy": "pinned", "pin": "baseline"},
            log={"level": "warning"},
        )
        config = Path(folder) / "peers.yaml"
        config.write_text(json.dumps(settings))
        with subprocess.Popen([sys.executable, "-P", "-m", "proxy", "serve", str(config)], cwd=ROOT) as proxy:
            try:
                wait_for(proxied, START_WITHIN_S)
                yield direct, proxied
            finally:
                proxy.terminate()


# ---------------------------------------------------------------- telling


def table(found: dict[str, Compared]) -> Iterator[str]:
    """A row for each suite, and the tests that differ."""
    yield "| suite | version | tests | direct | through the proxy | by chance | differ | took |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, each in found.items():
        version = version_of(SUITES[name]) if name in SUITES else "-"
        counts = (_counted(each.direct), _counted(each.proxied)) if name in SUITES else ("-", "-")
        cells = (
            name,
            version,
            len(each.direct),
            *counts,
            len(each.chance),
            len(each.different),
            f"{each.took_s:.0f} s",
        )
        yield f"| {' | '.join(map(str, cells))} |"
    for name, each in found.items():
        for test, (direct, proxied) in each.different.items():
            yield f"{name}: {test}: {direct} directly, {proxied} through the proxy"


def _counted(outcomes: Outcomes) -> str:
    counts = Counter(outcome.split()[0] for outcome in outcomes.values())
    return ", ".join(f"{counts[word]} {word}" for word in ("passed", "failed", "skipped") if counts[word])


def main() -> int:
    """The exit code: 0 where nothing differs, 1 where something does."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suites", nargs="*", choices=[*SUITES, HEADS, []], help="all of them without a name")
    parser.add_argument("--only", metavar="WORDS", help="tests with these words in their names, as pytest -k has it")
    parser.add_argument("--json", metavar="FILE", type=Path, default=OUT / "result.json", help="where the outcomes go")
    chosen = parser.parse_args()
    with sides() as ports:
        found = {name: compared(name, ports, chosen.only) for name in chosen.suites or (*SUITES, HEADS)}
    print("\n".join(table(found)))
    told = {
        name: {"direct": each.direct, "proxied": each.proxied, "chance": each.chance, "different": each.different}
        for name, each in found.items()
    }
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(told, indent=1) + "\n")
    return 1 if any(each.different for each in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
