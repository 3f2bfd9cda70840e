"""Measured speeds as operators see them."""

from pathlib import Path

import orjson
from fakes.curves import context, measured, one_sided, write

from proxy.config.curves_file import read_curves
from proxy.config.curves_shown import sentences, shown


def test_each_bucket_has_its_sentence(tmp_path: Path) -> None:
    contexts = [context(), one_sided("never_speculate", context_tokens=8192)]
    curves, _ = read_curves(write(tmp_path, measured(contexts=contexts)))
    assert sentences(curves) == [
        "at 1024 tokens of context: Baseline overtakes at 6 sequences in flight (95 % interval 5 to 7).",
        "at 8192 tokens of context: Never speculate: it was measured so.",
    ]


def test_what_a_quick_run_assumed_is_not_shown_as_an_interval_of_95_percent(tmp_path: Path) -> None:
    once = [{**each, "repeats": 1} for each in context()["ratio"]]
    curves, _ = read_curves(write(tmp_path, measured(contexts=[context(ratio=once)])))
    (said,) = sentences(curves)
    assert said.endswith(
        "Baseline overtakes at 6 sequences in flight (about 5 to 7: too few repeats for a 95 % interval)."
    )


def test_all_that_was_measured_is_shown_as_json(tmp_path: Path) -> None:
    ratio = [{"in_flight": 5, "ratio": 1.25}]
    curves, _ = read_curves(write(tmp_path, measured(contexts=[context(), context(context_tokens=2048, ratio=ratio)])))
    told = orjson.loads(orjson.dumps(shown(curves)))
    assert (told["measured_at"], told["placement"], told["model"]) == ("2026-11-30T04:12:00Z", "separate", "m")
    assert told["engines"] == {"speculative": "0.5.23", "baseline": "0.5.23"}
    first, second = told["contexts"]
    assert (first["context_tokens"], first["verdict"]) == (1024, "crossover_at")
    assert first["crossings"] == [{"at": 5.9, "low": 5.0, "high": 7.0, "faster_above": "baseline"}]
    assert first["band"] == {"enter_at": 5, "leave_at": 7}
    assert first["speculative"][0] == {"in_flight": 5, "tok_s": 250, "low": 245, "high": 255, "predicted": False}
    assert second["contrasts"][0]["low"] is None, "an edge that is not known"


def test_without_curves_there_is_nothing_to_show() -> None:
    assert (sentences(None), shown(None)) == ([], {"measured_at": None, "contexts": []})
