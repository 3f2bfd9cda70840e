"""An engine that takes SGLang's flags and is an embedded one: a whole run can be tried where there is no GPU.

    scripts/gpu_pair --engine "python -m pair.stand_in --curve NAME" ...

Flags that bear on nothing here are taken and passed over; two of these on one GPU do not slow each other down.
"""

import argparse
import os
import sys
from collections.abc import Sequence


def command(argv: Sequence[str]) -> list[str]:
    """What to run in place of SGLang."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--curve", default="h200_llama8b_sglang_tree_2_4_16")
    add("--time-scale", default="1")
    add("--health-latency-s", default="1")
    add("--host", default="127.0.0.1")
    add("--port", required=True)
    add("--max-running-requests")
    add("--speculative-algorithm")
    add("--speculative-adaptive", action="store_true")
    asked, _ = parser.parse_known_args(argv)
    role = "baseline" if asked.speculative_algorithm is None else "speculative"
    found = [sys.executable, "-P", "-m", "proxy", "engine", "--curve", asked.curve, "--role", role]
    found += ["--host", asked.host, "--port", asked.port, "--time-scale", asked.time_scale]
    found += ["--health-latency-s", asked.health_latency_s]
    if asked.max_running_requests is not None:
        found += ["--max-running-requests", asked.max_running_requests]
    return [*found, "--speculative-adaptive"] if asked.speculative_adaptive else found


if __name__ == "__main__":
    line = command(sys.argv[1:])
    os.execv(line[0], line)
