"""What a run leaves for people and programs: report.md and result.json, written anew after every trial."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.provenance import machine, today, versions
from bench.tables import aligned
from pair.arrivals import Step
from pair.instances import Instance
from pair.limits import Limits
from pair.options import ADAPTIVE, AUTO, BLIND, FIXED, ONLY_BASELINE, ONLY_SPECULATIVE, THRESHOLD, UNLEARNED, Options

from proxy.model import Placement, Role
from proxy.routing.curves import ContextCurves

NAMES = {
    ONLY_SPECULATIVE: "only speculative",
    ONLY_BASELINE: "only baseline",
    ADAPTIVE: "the engine's adaptive speculation, alone",
    FIXED: "one fixed limit, HAProxy's rule",
    THRESHOLD: "Crossover, `threshold`",
    AUTO: "Crossover, `auto`",
    UNLEARNED: "Crossover, `auto` without learning",
    BLIND: "Crossover, `auto` that looks at no cache",
}
_SMI = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.used", "--format=csv,noheader")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run is: its instances, what they told of themselves, what was asked for, and the curves."""

    wanted: Sequence[Instance]
    told: dict[str, dict[str, Any]]
    options: Options
    context: ContextCurves
    steps: Sequence[Step]
    limits: Mapping[Placement, Limits]


def told_before(folder: Path) -> dict[str, dict[str, Any]]:
    """What the instances of a run that is gone on with had told of themselves."""
    file = folder / "result.json"
    before = json.loads(file.read_text())["instances"] if file.exists() else []
    return {one["name"]: one["told"] for one in before if one["told"] is not None}


def write(facts: Facts) -> None:
    """Write both files from the trials that are kept."""
    folder = facts.options.out
    kept = [json.loads(path.read_text()) for path in sorted((folder / "trials").glob("*.json"))]
    order = list(NAMES)
    kept.sort(key=lambda one: (one["placement"] is not None, str(one["placement"]), order.index(one["arm"])))
    result = as_json(facts, kept)
    (folder / "result.json").write_text(json.dumps(result, indent=1, default=str) + "\n")
    (folder / "report.md").write_text("\n".join(_lines(facts, result)) + "\n")


def as_json(facts: Facts, kept: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything worth keeping of a run, requests left out."""
    return {
        "day": today(),
        "machine": machine() | {"gpus": gpus()},
        "versions": versions({}),
        "options": {name: value for name, value in asdict(facts.options).items() if name not in ("out", "curves")},
        "instances": [
            {"name": one.name, "gpu": one.gpu, "command": one.line, "told": facts.told.get(one.name)}
            for one in facts.wanted
        ],
        "curves": {
            role.value: [point._asdict() for point in curve.points]
            for role in Role
            if (curve := facts.context.of(role)) is not None
        },
        "verdict": facts.context.verdict.kind.value,
        "limits": {placement.value: asdict(found) for placement, found in facts.limits.items()},
        "loads": [step._asdict() for step in facts.steps],
        "trials": list(kept),
    }


def gpus() -> list[str]:
    """The GPUs by the driver's word; none where there is no driver."""
    try:
        said = subprocess.run(_SMI, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return said.stdout.splitlines()


def in_a_line(trial: Mapping[str, Any]) -> str:
    """The most of a trial that fits into a line."""
    return ", ".join(f"{name} {value}" for name, value in zip(HEAD[1:], _row(trial, trial["all"])[1:], strict=True))


HEAD = (
    *("arm", "requests", "errors", "on speculative", "mean s", "p50 s", "p99 s", "TTFT p50 ms", "p99 ms"),
    *("TPOT mean ms", "p99 ms", "tok/s", "in flight", "cached"),
)


def _lines(facts: Facts, result: Mapping[str, Any]) -> Iterator[str]:
    yield "# A pair on GPUs\n"
    yield f"{result['day']}; {'; '.join(result['machine']['gpus']) or 'no GPU'}; {result['machine']['cpu']}, "
    yield f"{result['machine']['cores']} cores. " + ", ".join(f"{k} {v}" for k, v in result["versions"].items()) + ".\n"
    yield from _instances(result)
    yield from _curves(facts)
    yield "## All arrivals\n"
    loads = ", ".join(f"{step.rate:.3g}/s" for step in facts.steps)
    options = facts.options
    yield (
        f"The same for every arm: {loads}, each for {options.step_s:g} s, prompts `{options.prompts}`, answers of "
        f"{options.tokens} tokens on average, conversations of {options.turns} turns, seed {options.seed}. "
        "Latencies are of whole answers.\n"
    )
    trials = result["trials"]
    yield aligned([(*HEAD, "left", "proxy CPU"), *((*_row(one, one["all"]), *_rest(one)) for one in trials)]) + "\n"
    yield from _changes(trials)
    for place, step in enumerate(facts.steps):
        yield f"## Load {place + 1}: {step.rate:.3g} requests/s\n"
        yield aligned([HEAD, *(_row(one, one["steps"][place]) for one in trials)]) + "\n"


def _instances(result: Mapping[str, Any]) -> Iterator[str]:
    yield "## Instances\n"
    for one in result["instances"]:
        told = one["told"]
        yield f"- **{one['name']}**: GPU {one['gpu']}{'' if told else ', did not come up'}. `{one['command']}`"
        if told:
            yield f"  It says: {', '.join(f'{name} {value}' for name, value in told.items())}."
    yield ""


def _curves(facts: Facts) -> Iterator[str]:
    yield "## Curves, as calibrated\n"
    curves = {role: curve for role in Role if (curve := facts.context.of(role)) is not None}
    counts = sorted({point.in_flight for curve in curves.values() for point in curve.points})
    rows = [("in flight", *(role.value for role in curves), "ratio")]
    for n in counts:
        tok_s = [curve.tok_s(n) for curve in curves.values()]
        rows.append((f"{n:g}", *(f"{one:,.0f}" for one in tok_s), f"{tok_s[0] / tok_s[-1]:.2f}"))
    yield aligned(rows) + "\n"
    for placement, found in facts.limits.items():
        yield f"Placement `{placement}`: crossing at {found.crossing} in flight, fixed limit {found.fixed}.\n"


def _changes(trials: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    # A trial kept by an earlier version has none.
    rows = [(_name(one), *_change(each)) for one in trials for each in one.get("changes", ())]
    if rows:
        yield "## When the favoured role changed\n"
        head = ("arm", "load", "after s", "to", "on speculative", "on baseline", "demand tok/s")
        yield aligned([head, *rows]) + "\n"


def _change(one: Mapping[str, Any]) -> tuple[str, ...]:
    load = "after the last" if one["step"] is None else str(one["step"] + 1)
    counts = (str(one["speculative"]), str(one["baseline"]))
    return load, f"{one['in_step_s']:.1f}", one["role"], *counts, _number(one["demand_tok_s"], "{:,.0f}")


def _name(trial: Mapping[str, Any]) -> str:
    return NAMES[trial["arm"]] + (f", {trial['placement']}" if trial["placement"] else "")


def _row(trial: Mapping[str, Any], one: Mapping[str, Any]) -> tuple[str, ...]:
    shares = one["shares"]
    errors = ", ".join(f"{count} {what}" for what, count in one["errors"].items())
    e2e, ttft, tpot = (one[key] or {} for key in ("e2e_s", "ttft_s", "tpot_s"))
    return (
        _name(trial),
        str(one["requests"]),
        errors or "0",
        f"{shares.get('speculative', 0):.0%}" if shares else "-",
        *(_number(e2e.get(key), "{:.2f}") for key in ("mean", "p50", "p99")),
        *(_number(ttft.get(key), "{:.0f}", 1e3) for key in ("p50", "p99")),
        *(_number(tpot.get(key), "{:.1f}", 1e3) for key in ("mean", "p99")),
        f"{one['tok_s']:,.0f}",
        f"{one['in_flight']:.1f}",
        _number(one["cached_share"], "{:.0%}"),
    )


def _rest(trial: Mapping[str, Any]) -> tuple[str, str]:
    left, cpu = trial["left_in_flight"], trial["proxy_cpu"]
    return str(sum(left.values())), "-" if cpu is None else f"{cpu:.0%}"


def _number(value: float | None, form: str, times: float = 1.0) -> str:
    return "-" if value is None else form.format(value * times)
