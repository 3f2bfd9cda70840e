"""What `crossover top` is told by a busy proxy: a minute of history, decisions, a journal."""

from typing import Any

COLUMNS = (
    "at_s",
    *("speculative_in_flight", "baseline_in_flight", "waiting", "smoothed", "enter_at", "leave_at", "regime"),
    *("speculative_requests", "baseline_requests", "speculative_tok_s", "baseline_tok_s"),
    *("speculative_ttft_s", "baseline_ttft_s", "speculative_tpot_s", "baseline_tpot_s", "failures", "refused"),
)


def row(second: int) -> list[Any]:
    """One step: speculative climbs to 60, baseline stays at 3 and tells no times."""
    return [1e9 + second, second, 3, 0, 3.0, 5, 9, "speculative", 3, 1, 300.0, 100.0, 0.25, None, 0.02, None, 0, 0]


def history(steps: int = 60) -> dict[str, Any]:
    return {"step_s": 1.0, "columns": list(COLUMNS), "samples": [row(second) for second in range(1, steps + 1)]}


def decisions(count: int = 50) -> dict[str, Any]:
    because = {"speculative_in_flight": 3, "baseline_in_flight": 1, "speculative_cost_s": 0.5, "baseline_cost_s": 1.25}
    one = {"at_s": 1e9, "role": "speculative", "reason": "cheaper", "because": because}
    return {"decisions": [{**one, "request_id": f"{number:08}-rest"} for number in range(count)]}


def journal(count: int = 50) -> dict[str, Any]:
    return {"events": [{"at_s": 1e9, "kind": "health", "sentence": f"Event {n} " + "x" * 200} for n in range(count)]}


WATCHED: dict[str, Any] = {"history": history(), "decisions": decisions(), "journal": journal()}
