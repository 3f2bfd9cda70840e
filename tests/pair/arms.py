"""The arms: an instance alone, asked directly, or the pair behind the proxy by one rule. Running one is in trial.py."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pair.instances import Instance
from pair.limits import Limits
from pair.options import (
    ADAPTIVE,
    BASELINE,
    BESIDE,
    BLIND,
    FIXED,
    ONLY_BASELINE,
    ONLY_SPECULATIVE,
    PROXIED,
    SPECULATIVE,
    THRESHOLD,
    UNLEARNED,
    Options,
)

from proxy.model import Placement

ALONE_ON = {ONLY_SPECULATIVE: SPECULATIVE, ONLY_BASELINE: BASELINE, ADAPTIVE: ADAPTIVE}
# Above the port of the instances.
PROXY_PORT, ADMIN_PORT = 8, 9


@dataclass(frozen=True, slots=True)
class Trial:
    """An arm in a placement (None: one instance alone). `config` is the proxy's, empty without one; requests go to
    `url`, and `engines` are those that must be idle before and after."""

    arm: str
    placement: Placement | None
    url: str
    engines: tuple[Instance, ...]
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Its name as a file has it."""
        return self.arm if self.placement is None else f"{self.arm}-{self.placement.value}"


def trials(
    options: Options, up: Mapping[str, Instance], numbers: Mapping[Placement, Limits], curves: Path
) -> Iterator[Trial]:
    """The trials that these instances allow, in the order in which they are made."""
    for arm in options.arms:
        if arm in ALONE_ON and ALONE_ON[arm] in up:
            one = up[ALONE_ON[arm]]
            yield Trial(arm, None, one.url, (one,))
    for placement in options.placements:
        pair = _pair(options, up, placement)
        for arm in options.arms if len(pair) == 2 else ():
            if arm in PROXIED:
                config = _config(options, pair, placement, _routing(arm, numbers[placement], curves))
                yield Trial(arm, placement, f"http://127.0.0.1:{options.port + PROXY_PORT}", pair, config)


def _pair(options: Options, up: Mapping[str, Instance], placement: Placement) -> tuple[Instance, ...]:
    """The two instances that have GPUs of their own, or those that share one."""
    apart = options.gpus[0] != options.gpus[-1]
    other = BESIDE if placement is Placement.SHARED and apart else BASELINE
    return tuple(up[name] for name in (SPECULATIVE, other) if name in up)


def _routing(arm: str, numbers: Limits, curves: Path) -> dict[str, Any]:
    if arm == FIXED:
        return {"policy": "overflow", "leave_at": numbers.fixed}
    if arm == THRESHOLD:
        return {"policy": "threshold", "leave_at": max(2, numbers.crossing)}
    more = {UNLEARNED: {"learn": False}, BLIND: {"affinity": {"enabled": False}}}.get(arm, {})
    return {"policy": "auto", "curves_file": str(curves.resolve()), **more}


def _config(
    options: Options, pair: tuple[Instance, ...], placement: Placement, routing: Mapping[str, Any]
) -> dict[str, Any]:
    speculative, baseline = pair
    return {
        "listen": {"host": "127.0.0.1", "port": options.port + PROXY_PORT},
        "admin": {"port": options.port + ADMIN_PORT},
        "backends": {"speculative": {"url": speculative.url}, "baseline": {"url": baseline.url}},
        "placement": placement.value,
        "routing": dict(routing),
        # Arms compare by how long requests take, so none may be refused where another arm would have let it wait.
        "queue": {"max_waiting": 10_000, "max_wait_s": 600},
        # Nobody else is to be sent away before it stops.
        "timeouts": {"settle_s": 0},
        # What was decided on each request, and by which counts, for whoever asks why afterwards.
        "log": {"format": "json", "level": "info"},
    }
