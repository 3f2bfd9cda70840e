"""The other proxies: where each is found, its version, how to install it, and how it is configured for one core.

All of them: one worker or thread, no log, nothing gathered, kept connections to the engine, round robin over two
engines, and no limit below what the tests ask for. Starting and ending them is in contenders.py.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

NGINX, HAPROXY, SGLANG, VLLM = "nginx", "haproxy", "sglang-router", "vllm-router"
SMG, LITELLM = "smg", "litellm"
PEERS = (NGINX, HAPROXY, SGLANG, VLLM, SMG, LITELLM)
# Measured only when asked for: one more of a family that is there already, and one that is a hundred times slower.
OPTIONAL = (SMG, LITELLM)
ENVIRONMENT_VARIABLE = "CROSSOVER_BENCH_PEERS"

# Workers that cannot get their events away at once would otherwise wait for an acknowledgement or gather them.
NGINX_CONF = """\
daemon off; worker_processes 1; worker_rlimit_nofile {files}; pid {folder}/pid; error_log /dev/null crit;
events {{ worker_connections {files}; }}
http {{
  access_log off;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  upstream engines {{
    server 127.0.0.1:{first}; server 127.0.0.1:{second};
    keepalive 512; keepalive_requests 10000000; keepalive_timeout 1h;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    keepalive_requests 10000000; keepalive_timeout 1h; client_max_body_size 64m;
    location / {{
      proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 1h; tcp_nodelay on;
    }}
  }}
}}
"""
# Without http-no-delay it gathers events for tenths of a second; without abortonclose it finishes what nobody reads.
# A refused connection is tried again on the other engine, which is what it has redispatch for.
HAPROXY_CFG = """\
global
  nbthread 1
  maxconn {streams}
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  option http-no-delay
  option abortonclose
  option redispatch 1
  retries 3
frontend clients
  bind 127.0.0.1:{port} backlog 4096
  maxconn {streams}
  default_backend engines
backend engines
  balance roundrobin
  http-reuse always
  server first 127.0.0.1:{first}
  server second 127.0.0.1:{second}
"""
LITELLM_YAML = """\
model_list:
- model_name: bench
  litellm_params: {{model: openai/bench, api_base: "http://127.0.0.1:{first}/v1", api_key: none}}
- model_name: bench
  litellm_params: {{model: openai/bench, api_base: "http://127.0.0.1:{second}/v1", api_key: none}}
litellm_settings: {{telemetry: false, request_timeout: 3600}}
general_settings: {{disable_spend_logs: true}}
"""
_ROUTER = (
    "--host", "127.0.0.1", "--port", "{port}", "--policy", "round_robin", "--log-level", "error",
    "--prometheus-port", "{other_port}", "--worker-urls", "http://127.0.0.1:{first}", "http://127.0.0.1:{second}",
)  # fmt: skip
_ONE_THREAD = {"TOKIO_WORKER_THREADS": "1"}
# It is slow to import, and asks the internet for prices and a database for keys unless told not to.
_LITELLM_ALONE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    "DISABLE_ADMIN_UI": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a peer is run: words and files with {port}, {other_port}, {first}, {second}, {folder}, {files} and {streams}
    to be filled in. `package` is what pip calls it; one without is a program of the system."""

    arguments: tuple[str, ...]
    package: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    up_within_s: float = 60.0


RECIPES = {
    NGINX: Recipe(("-c", "{folder}/nginx.conf", "-p", "{folder}"), files={"nginx.conf": NGINX_CONF}),
    HAPROXY: Recipe(("-db", "-q", "-f", "{folder}/haproxy.cfg"), files={"haproxy.cfg": HAPROXY_CFG}),
    SGLANG: Recipe(
        ("launch", *_ROUTER, "--max-concurrent-requests", "-1"), package="sglang-router", environment=_ONE_THREAD
    ),
    VLLM: Recipe((*_ROUTER, "--max-concurrent-requests", "100000"), package="vllm-router", environment=_ONE_THREAD),
    SMG: Recipe(("launch", *_ROUTER, "--max-concurrent-requests", "-1"), package="smg", environment=_ONE_THREAD),
    LITELLM: Recipe(
        ("--config", "{folder}/litellm.yaml", "--host", "127.0.0.1", "--port", "{port}", "--num_workers", "1"),
        package="litellm",
        files={"litellm.yaml": LITELLM_YAML},
        environment=_LITELLM_ALONE,
        up_within_s=180.0,
    ),
}


@dataclass(frozen=True, slots=True)
class Found:
    """A peer on this machine."""

    program: Path
    version: str


def found(folder: Path | None) -> dict[str, Found]:
    """The peers on this machine, in the order of PEERS: programs on PATH, and virtual environments in `folder`."""
    seen = {name: _find(name, RECIPES[name], folder) for name in PEERS}
    return {name: each for name, each in seen.items() if each is not None}


def folder_of(option: Path | None) -> Path | None:
    """The folder with a virtual environment for each peer, from the option or the environment variable."""
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    return option or (Path(named) if named else None)


def install(name: str) -> str:
    """How a peer gets onto this machine, in a line of shell."""
    package = RECIPES[name].package
    if package is None:
        return f"apt-get install {name}"
    wanted = f"{package}[proxy]" if name == LITELLM else package
    return f'python3 -m venv "$PEERS/{name}" && "$PEERS/{name}/bin/pip" install "{wanted}"'


def listed(found: Mapping[str, Found]) -> str:
    """Every peer, where it was found or how it gets here."""
    lines = []
    for name in PEERS:
        extra = " (only when asked for by --contenders)" if name in OPTIONAL else ""
        if name in found:
            lines.append(f"{name:14} {found[name].version}, {found[name].program}{extra}")
        else:
            lines.append(f"{name:14} missing: {install(name)}{extra}")
    lines.append(f"PEERS is the folder of --peers or {ENVIRONMENT_VARIABLE}; its environments may have any name.")
    return "\n".join(lines)


def _find(name: str, recipe: Recipe, folder: Path | None) -> Found | None:
    if recipe.package is None:
        program = shutil.which(name)
        return Found(Path(program), _told_version(program)) if program else None
    if folder is not None:
        distribution = recipe.package.replace("-", "_")
        for place in sorted(folder.glob(f"*/lib/python*/site-packages/{distribution}-*.dist-info")):
            program_path = place.parents[3] / "bin" / name
            if program_path.exists():
                return Found(program_path, place.name.removeprefix(f"{distribution}-").removesuffix(".dist-info"))
    return None


def _told_version(program: str) -> str:
    """The first number with dots that the program says of itself with -v, which nginx and haproxy both know."""
    told = subprocess.run([program, "-v"], capture_output=True, text=True, check=False)
    number = re.search(r"\d+(\.\d+)+", told.stdout + told.stderr)
    return number[0] if number else "unknown"
