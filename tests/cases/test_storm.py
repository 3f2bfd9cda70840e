"""Every fault at once, for as long as one likes: no promise breaks. Options: --storm-seconds, --storm-seed.

What a storm is made of is in fakes/storm/; scripts/storm runs several.
"""

import asyncio
import contextlib
import gc
import json
from pathlib import Path

import pytest
from fakes.loops import EndingLoop
from fakes.storm.run import Storm


def open_descriptors() -> dict[str, str]:
    """What each open descriptor is."""
    gc.collect()
    found = {}
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one of this very look is gone by now
            found[each.name] = str(each.readlink())
    return found


def test_every_promise_holds_through_a_storm_of_every_fault(
    storm_seed: int, pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases H1 to H35, all at once: engines and clients do everything that they can do to each other."""
    for path in ("calls", "control"):  # kept connections need not be waited for
        monkeypatch.setattr(f"proxy.wire.{path}.POOL_IDLE_S", 0.5)
    monkeypatch.setattr("fakes.raw.WITHIN_S", 30.0)  # on a busy machine a storm is slow, and that is no fault
    seconds = pytestconfig.getoption("--storm-seconds")
    EndingLoop().close()  # the first one opens a pipe for signals that stays
    descriptors = open_descriptors()
    with asyncio.Runner(loop_factory=EndingLoop) as runner:
        figures = runner.run(Storm(storm_seed, seconds, tmp_path / "crossover.yaml").run()).summary()
    written = pytestconfig.getoption("--storm-figures")
    if written:
        Path(written).write_text(json.dumps({"seed": storm_seed, "seconds": seconds, **figures}))
    more = {number: what for number, what in open_descriptors().items() if descriptors.get(number) != what}
    assert not more, f"seed {storm_seed}: descriptors are left: {more}"
    print(figures)
    assert figures["calm_served"] > 0.3 * figures["calm"] > 0, figures
