"""The running proxy and the simulation of it place the same requests alike, and they take as long.

Proxy, engines and clients live in one loop whose clock leaps, so that a slow machine changes nothing: what is compared
is what they decide and how many steps it costs. `scripts/bench life` does the same in real time.
"""

import shutil

import pytest
from bench.life import GLM, Pair, against, agrees
from bench.life_scene import Outcome, Scene
from bench.life_stand import leapt

from proxy.model import Placement

# One life of some hundred requests: lengths of drafts and the order of things at one instant are by chance.
MAX_SHARE_APART, MAX_TIME_APART = 0.025, 0.04


@pytest.mark.parametrize(
    "scene",
    [
        Scene(GLM, Placement.SEPARATE, "marginal", (0.3, 0.7), 1, 90, 30),
        Scene(GLM, Placement.SHARED, "threshold", (0.2, 0.6), 1, 90, 30),
        Scene(GLM, Placement.SHARED, "consolidate", (0.1, 0.7), 1, 120, 80),
    ],
    ids=lambda scene: scene.policy,
)
def test_life_and_simulation_place_alike_and_take_as_long(scene: Scene) -> None:
    played, path = leapt(scene, scene.offers(1), 1)
    try:
        pair = against(scene, 1, played, path)
    finally:
        shutil.rmtree(path.parent)
    assert 0.1 < pair.life.share < 0.9, "a scene in which both have work, or agreeing means nothing"
    assert pair.share_apart == pytest.approx(0.0, abs=MAX_SHARE_APART), pair
    assert pair.apart("e2e_s") == pytest.approx(0.0, abs=MAX_TIME_APART), pair
    assert pair.apart("ttft_s") == pytest.approx(0.0, abs=2 * MAX_TIME_APART), pair


def test_a_scene_agrees_by_the_mean_of_its_lives() -> None:
    def pair(share: float, e2e_s: float) -> Pair:
        return Pair("one", 1, 100, Outcome(share, e2e_s, 0.1), Outcome(0.5, 2.0, 0.1), 0.0)

    assert agrees([pair(0.53, 2.0), pair(0.49, 2.1)])
    assert not agrees([pair(0.53, 2.0), pair(0.53, 2.0)])
    assert not agrees([pair(0.5, 2.3), pair(0.5, 2.2)])
