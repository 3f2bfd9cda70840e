"""One embedded engine as a process: how it starts and every way in which it ends."""

import argparse
import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from proxy.lab.engine_options import add_arguments, options_of

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import argparse, asyncio, sys
from proxy.lab import embedded
parser = argparse.ArgumentParser()
embedded.add_arguments(parser)
sys.exit(asyncio.run(embedded.run_command(parser.parse_args())))
"""
STREAM = {
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 20,
    "ignore_eos": True,
    "stream": True,
}


@contextlib.asynccontextmanager
async def _process(*arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=ROOT
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _url(process: Process) -> str:
    assert process.stdout is not None
    word, port = (await process.stdout.readline()).split()
    assert word == b"ready"
    return f"http://127.0.0.1:{int(port)}"


async def _ended(process: Process) -> int:
    async with asyncio.timeout(60):
        return await process.wait()


async def test_two_engines_on_the_same_gpus_say_two_ports_speculative_first() -> None:
    async with _process("--die-with-parent", "--shared") as process, aiohttp.ClientSession() as http:
        assert process.stdout is not None
        word, *ports = (await process.stdout.readline()).split()
        assert word == b"ready"
        drafts = []
        for port in map(int, ports):
            async with http.get(f"http://127.0.0.1:{port}/server_info") as answer:
                drafts.append((await answer.json())["speculative_algorithm"])
        assert drafts == ["MTP", None]
        assert process.stdin is not None
        process.stdin.close()
        assert await _ended(process) == 0


async def test_it_says_its_port_and_ends_with_its_parent() -> None:
    async with _process("--die-with-parent", "--role", "speculative") as process:
        url = await _url(process)
        async with aiohttp.ClientSession() as http, http.get(f"{url}/server_info") as response:
            assert (await response.json())["speculative_algorithm"] == "MTP"
        assert process.stdin is not None
        process.stdin.close()
        assert await _ended(process) == 0


async def test_sigterm_lets_a_stream_end_and_answers_not_ready_meanwhile() -> None:
    # Three seconds of stream: it is to last until the questions are answered, on a slow machine too.
    async with _process("--time-scale", "2") as process, aiohttp.ClientSession() as http:
        url = await _url(process)
        async with http.post(f"{url}/v1/chat/completions", json={**STREAM, "max_tokens": 150}) as response:
            process.send_signal(signal.SIGTERM)
            statuses = set()
            while 503 not in statuses:
                async with http.get(f"{url}/ready") as ready:
                    statuses.add(ready.status)
            assert (await response.read()).endswith(b"data: [DONE]\n\n")
        assert await _ended(process) == 0


async def test_a_second_signal_ends_it_at_once() -> None:
    async with _process("--time-scale", "5") as process, aiohttp.ClientSession() as http:
        url = await _url(process)
        async with http.post(f"{url}/v1/chat/completions", json={**STREAM, "max_tokens": 2000}):
            process.send_signal(signal.SIGTERM)
            async with http.get(f"{url}/ready"):
                pass
            process.send_signal(signal.SIGINT)
            assert await _ended(process) == 0


async def test_what_it_is_asked_for_is_what_it_says() -> None:
    shape = ("--kv-tokens", "9000", "--prefill-tokens-per-s", "5000", "--jitter", "0", "--adaptive-tax", "0.2")
    async with _process("--role", "speculative", "--speculative-adaptive", *shape) as process:
        url = await _url(process)
        async with aiohttp.ClientSession() as http, http.get(f"{url}/server_info") as response:
            said = await response.json()
        assert (said["max_total_num_tokens"], said["speculative_adaptive"]) == (9000, True)


def test_the_options_of_one_engine_are_all_taken() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    asked = "--kv-tokens 9000 --prefill-tokens-per-s 5000 --jitter 0 --adaptive-tax 0.2 --speculative-adaptive"
    options = options_of(parser.parse_args(asked.split()))
    assert (options.kv_tokens, options.prefill_tokens_per_s, options.jitter) == (9000, 5000.0, 0.0)
    assert (options.adaptive_tax, options.speculative_adaptive) == (0.2, True)


@pytest.mark.parametrize(
    "wrong", [("--kv-tokens", "0"), ("--prefill-tokens-per-s", "-1"), ("--jitter", "2"), ("--adaptive-tax", "-0.1")]
)
def test_options_out_of_range_are_bad_usage(capsys: pytest.CaptureFixture[str], wrong: tuple[str, str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(wrong)
    assert (ended.value.code, wrong[0] in capsys.readouterr().err) == (2, True)


async def test_an_unknown_curve_is_told_with_the_known_ones() -> None:
    async with _process("--curve", "nonsense") as process:
        assert await _ended(process) == 1
        assert process.stderr is not None
        assert b"known curves" in await process.stderr.read()


async def test_a_taken_port_is_told() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, _process("--port", str(port)) as process:
        assert await _ended(process) == 1
        assert process.stderr is not None
        assert b"choose another --port" in await process.stderr.read()
