"""A calibration's file as the laboratory's engines take it."""

from pathlib import Path

import pytest
from fakes.curves import context, measured, write

from proxy.errors import ConfigError
from proxy.lab import calibrated
from proxy.lab.curve import DEFAULT_PREFILL_TOKENS_PER_S
from proxy.model import Role


def test_the_smallest_context_is_taken_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    small = context(speculative_prefill_tok_s=9000)
    curve, told = calibrated.smallest(write(tmp_path, measured(contexts=[small, context(context_tokens=8192)])))
    assert (curve.name, curve.context_tokens, curve.prefill_tokens_per_s) == ("curves", 1024, 9000)
    # No further request makes an engine faster by more than its own share: 300 measured at 7 is 280 beside 200 at 5.
    assert [(point.concurrency, point.speculative, point.baseline) for point in curve.points] == [
        (5, pytest.approx(250), pytest.approx(200)),
        (7, pytest.approx(240), pytest.approx(280)),
    ]
    assert told.endswith("measured at 1024 tokens of context, placement separate; left out: 8192 tokens")


def test_a_context_without_one_backend_is_passed_over(tmp_path: Path) -> None:
    written = measured(contexts=[context(baseline=[]), context(context_tokens=8192)])
    curve, told = calibrated.smallest(write(tmp_path, written))
    assert (curve.context_tokens, curve.prefill_tokens_per_s) == (8192, DEFAULT_PREFILL_TOKENS_PER_S)
    assert "left out" not in told
    assert curve.speeds(Role.BASELINE)[0].tok_s == pytest.approx(200)


def test_a_file_without_both_backends_is_refused_with_the_mend(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="calibrate again with both of them"):
        calibrated.smallest(write(tmp_path, measured(contexts=[context(baseline=[])])))
