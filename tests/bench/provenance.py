"""Where figures come from: the day, the machine in words that name nobody, and the version of everything measured."""

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.clocks import cores
from bench.peers import Found

import proxy

LIBRARIES = ("aiohttp", "uvloop", "httptools", "orjson", "structlog", "prometheus-client")


def today() -> str:
    """The day, in UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def versions(peers: Mapping[str, Found]) -> dict[str, str]:
    """Of the product, of what it and the bare proxy stand on, and of the peers."""
    return {
        "crossover": proxy.__version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in LIBRARIES},
        **{name: each.version for name, each in peers.items()},
    }


def machine() -> dict[str, Any]:
    """Its processor, how many cores of it we may use, whether the proxy has one to itself, and the kernel."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "pinned": cores() is not None,
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
    }
