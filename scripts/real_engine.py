"""One real engine: llama.cpp's own HTTP server out of the xllamacpp wheel, on the processor, until its parent ends.

Runs in .venv-real, so it imports that wheel and the standard library alone. It prints `ready PORT` when it serves. Not
here: which weights, and which two engines make a pair (real_pair.py).
"""

import argparse
import os
import sys

import xllamacpp
from xllamacpp import common_speculative_type

# Tokens that one slot holds, prompt and answer: enough for the thousand that calibration fills, and 50 MB of memory.
SLOT_TOKENS = 2048
# Memory for prompts that no slot holds any more; one of 400 tokens takes 9 MiB, and calibration asks sixteen.
PROMPTS_MIB = 256
# Each connection holds one of the server's threads while it is open, idle ones for 5 s too: with as many as the server
# takes by itself (slots + 4) the requests that wait would keep its health page from answering.
HTTP_THREADS_A_SLOT = 8


def main() -> None:
    """Serve until standard input is closed, which the end of the parent does too."""
    options = _options()
    server = xllamacpp.Server(_settings(options))
    print("ready", server.listening_address.rpartition(":")[2], flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # the library's own end waits for answers that nobody reads any more


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", required=True, help="what /v1/models calls it")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--draft", help="weights that draft; without them nothing is drafted")
    parser.add_argument("--draft-tokens", type=int, default=3)
    parser.add_argument("--accept", type=float, nargs="*", help="share of drafts accepted at each place, invented")
    return parser.parse_args()


def _settings(options: argparse.Namespace) -> xllamacpp.CommonParams:
    settings = xllamacpp.CommonParams()
    settings.model.path = options.model
    settings.model_alias = {options.name}
    settings.hostnames = ["127.0.0.1"]
    settings.port = options.port
    settings.n_parallel = options.slots
    settings.n_ctx = SLOT_TOKENS * options.slots
    settings.n_threads_http = HTTP_THREADS_A_SLOT * options.slots
    settings.endpoint_metrics = settings.endpoint_slots = settings.endpoint_props = True
    settings.fit_params = settings.ui = False
    settings.cache_ram_mib = PROMPTS_MIB
    settings.verbosity = 1
    threads = [settings.cpuparams, settings.cpuparams_batch]
    if options.draft:
        draft = settings.speculative.draft
        settings.speculative.types = [common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        draft.mparams.path = options.draft
        draft.n_max = options.draft_tokens
        threads += [draft.cpuparams, draft.cpuparams_batch]
        if options.accept:
            settings.speculative.synth_rates = options.accept
    for one in threads:
        one.n_threads = options.threads
    return settings


if __name__ == "__main__":
    main()
