"""The load client: a process of its own that does one job after another. What is made of them is in figures.py.

Usage: python -m bench.load; a Job a line on stdin, a Load a line on stdout.
"""

import dataclasses
import gc
import json
import sys
from typing import Any

from bench.files import raise_file_limit
from bench.jobs import PLAIN, STOPPED, Job, Load
from bench.plain import plain
from bench.stopped import stopped
from bench.streams import streams
from bench.wire import Broken


def measure(job: Job) -> Load:
    """Do one job. Raises Broken or OSError where a contender fails."""
    return {PLAIN: plain, STOPPED: stopped}.get(job.test, streams)(job)


def job_of(line: str) -> Job:
    """A job as it was asked for."""
    asked: dict[str, Any] = json.loads(line)
    return Job(**{**asked, "pids": tuple(asked["pids"])})


def main() -> None:
    """Do jobs until there are no more; a failed one is answered with its error."""
    raise_file_limit()
    # Nothing here makes cycles, and a collection with ten thousand streams would delay the events behind it.
    gc.disable()
    for line in sys.stdin:
        answer: dict[str, Any]
        try:
            answer = dataclasses.asdict(measure(job_of(line)))
        except (Broken, OSError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        gc.collect()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
