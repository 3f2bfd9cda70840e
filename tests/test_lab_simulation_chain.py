"""The Markov chain of two engines: closed forms, and the published optima of these curves."""

from typing import NamedTuple

import numpy as np
import pytest

from proxy.lab.curves import find
from proxy.lab.simulation.arms import Bench, settings_of
from proxy.lab.simulation.arrivals import Means
from proxy.lab.simulation.chain import Chain, Worth, best, least_delay, weigh
from proxy.lab.simulation.oracles import chain_of, works
from proxy.lab.simulation.pace import Pace, capacity, paces
from proxy.lab.simulation.trial import desk_plan
from proxy.model import ROLES, BackendLoad, LoadSnapshot, Placement, Regime, Role, Traits
from proxy.routing import policy

TREE, KIMI, KIMI_21K = (
    "specdecodebench_sglang_qwen3-8b_gsm8k_tree_k21",
    "rtx6kpro_kimi26_v1_dcp1_ctx0",
    "rtx6kpro_kimi26_v1_dcp1_ctx21k",
)
# 256 output tokens, and prompts that cost nothing.
BARE = Means(0.0, 256.0, 0.0)
LIMIT = 110


def _chain(name: str, placement: Placement, load: float, *, fitted: bool = False, limit: int = LIMIT) -> Chain:
    """A load is a share of what there is at most with up to LIMIT in flight, however many the chain goes to."""
    full, both = (
        {role: Pace(pace.step_s, pace.tokens) for role, pace in paces(find(name), most, fitted=fitted).items()}
        for most in (LIMIT, limit)
    )
    bench = Bench(find(name), placement, both, limit)
    asked = works(bench, BARE)
    return chain_of(bench, load * capacity(full, placement, asked), asked)


def _even(per_s: float, limit: int, arrivals_per_s: float) -> Chain:
    """Two engines that end as many requests a second whatever their batch."""
    row = np.full(limit + 1, per_s)
    row[0] = 0.0
    return Chain(arrivals_per_s, np.repeat(row[:, None], limit + 1, 1), np.repeat(row[None, :], limit + 1, 0))


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8, 0.95])
def test_one_steady_engine_has_the_mean_of_the_textbook(load: float) -> None:
    only = np.ones((301, 2), dtype=np.bool_)
    row = np.append(0.0, np.full(300, 10.0))
    beside = np.repeat(np.array([[0.0, 10.0]]), 301, 0)
    chain = Chain(load * 10.0, np.repeat(row[:, None], 2, 1), beside)
    # The other engine takes what does not fit, which at 300 in flight is nothing.
    assert weigh(chain, only).response_s == pytest.approx(1.0 / (10.0 * (1.0 - load)), rel=1e-4)


def test_the_best_of_two_equal_engines_is_to_join_the_shorter() -> None:
    table, worth = best(_even(1.0, 60, 1.4))
    rows, columns = np.indices(table.shape)
    inside = (rows < 20) & (columns < 20)
    assert table[inside & (rows < columns)].all()
    assert not table[inside & (rows > columns)].any()
    # Two queues that join the shorter do a little worse than one queue for both: 1.96 s.
    assert 1.961 < worth.response_s < 2.4


class Published(NamedTuple):
    """Mean seconds of the optimum and of each engine alone, where published; `limit` is how far the chain has to go."""

    name: str
    load: float
    limit: int
    optimum: float
    only_speculative: float | None
    only_baseline: float


SEPARATE = [
    Published(TREE, 0.05, 50, 0.925, 0.925, 1.647),
    Published(TREE, 0.2, 60, 1.318, 1.515, 1.727),
    Published(TREE, 0.3, 70, 1.455, None, 1.785),
    Published(TREE, 0.5, 110, 1.632, None, 1.913),
    Published(KIMI_21K, 0.05, 40, 2.974, 3.603, 4.094),
    Published(KIMI_21K, 0.1, 40, 3.489, 5.031, 5.403),
    Published(KIMI_21K, 0.2, 60, 4.890, 8.351, 9.582),
    Published(KIMI_21K, 0.3, 70, 6.484, None, 13.58),
    Published(KIMI_21K, 0.45, 110, 9.775, None, 22.00),
    Published(KIMI, 0.05, 40, 2.955, 3.555, 4.358),
    Published(KIMI, 0.1, 40, 3.684, 4.470, 6.839),
    Published(KIMI, 0.2, 60, 4.825, 6.036, 9.406),
    Published(KIMI, 0.3, 80, 6.105, 7.938, 10.93),
]


@pytest.mark.parametrize("told", SEPARATE, ids=lambda told: f"{told.name}-{told.load}")
def test_the_optimum_on_separate_gpus_is_the_published_one(told: Published) -> None:
    # The tree was reckoned with its fit, the others with what was measured.
    chain = _chain(told.name, Placement.SEPARATE, told.load, fitted=told.name == TREE, limit=told.limit)
    assert best(chain)[1].response_s == pytest.approx(told.optimum, rel=0.002)
    everything = np.ones(chain.shape, dtype=np.bool_)
    assert weigh(chain, ~everything).response_s == pytest.approx(told.only_baseline, rel=0.002)
    if told.only_speculative is not None:
        assert weigh(chain, everything).response_s == pytest.approx(told.only_speculative, rel=0.002)


@pytest.mark.parametrize(
    ("load", "optimum", "only_baseline"), [(0.1, 0.963, 1.655), (0.2, 1.171, 1.689), (0.3, 1.492, 1.725)]
)
def test_the_optimum_on_shared_gpus_is_the_published_one(load: float, optimum: float, only_baseline: float) -> None:
    chain = _chain(TREE, Placement.SHARED, load, fitted=True, limit=80)
    table, worth = best(chain)
    assert worth.response_s == pytest.approx(optimum, rel=0.002)
    assert worth.speculative_share > 0.99
    assert weigh(chain, np.zeros(chain.shape, dtype=np.bool_)).response_s == pytest.approx(only_baseline, rel=0.002)
    # Whoever forgets that steps alternate pays for it.
    assert weigh(chain, least_delay(chain)).response_s > (1.01 if load < 0.2 else 2.0) * worth.response_s
    assert bool(table[0, 0])


def test_least_delay_is_within_a_percent_of_the_optimum_on_separate_gpus() -> None:
    for name in (TREE, KIMI, KIMI_21K):
        chain = _chain(name, Placement.SEPARATE, 0.3, limit=70)
        assert 1.0 <= weigh(chain, least_delay(chain)).response_s / best(chain)[1].response_s < 1.01


@pytest.mark.parametrize("placement", Placement)
@pytest.mark.parametrize("load", [0.1, 0.5])
def test_no_policy_is_better_than_the_optimum(placement: Placement, load: float) -> None:
    limit = 40
    chain = _chain(KIMI, placement, load, limit=limit)
    optimum = best(chain)[1].response_s
    for said in ("auto", "marginal", "overflow", "overflow:3", "overflow:20", "pinned"):
        assert weigh(chain, _choices(said, placement, limit)).response_s >= optimum * (1.0 - 1e-9)
    drawn = np.random.default_rng(1)
    for _ in range(5):
        assert weigh(chain, drawn.random(chain.shape) < 0.5).response_s >= optimum


def _choices(said: str, placement: Placement, limit: int) -> np.ndarray:
    """What a policy without a memory chooses in each state."""
    bench = Bench(find(KIMI), placement, paces(find(KIMI), limit), limit)
    rules = desk_plan(settings_of(bench, *said.partition(":")[::2])).rules
    table = np.zeros((limit + 1, limit + 1), dtype=np.bool_)
    for speculative in range(limit + 1):
        for baseline in range(limit + 1):
            loads = (BackendLoad(role, n, limit) for role, n in zip(ROLES, (speculative, baseline), strict=True))
            decision = policy.decide(rules, Regime(), LoadSnapshot(0.0, *loads), Traits())
            table[speculative, baseline] = decision.role is Role.SPECULATIVE
    return table


def test_a_table_that_names_a_full_engine_means_the_other() -> None:
    chain = _even(1.0, 4, 3.0)
    worth = weigh(chain, np.ones(chain.shape, dtype=np.bool_))
    assert worth.edge > 0.5
    assert 0.4 < worth.speculative_share < 0.7


def test_a_heavy_load_far_from_an_empty_system_is_reckoned_as_well_as_a_light_one() -> None:
    # From the empty state, which such a system sees once in an age, all differences of delays would be lost.
    chain = _chain(KIMI, Placement.SEPARATE, 0.6, limit=80)
    table = least_delay(chain)
    for worth in (weigh(chain, table), weigh(chain, table, (0, 0))):
        assert min(worth.usual) > 10
        assert _imbalance(chain, table, worth) < 1e-6


def test_an_engine_that_is_overrun_is_reckoned_too() -> None:
    chain = _chain(KIMI, Placement.SEPARATE, 0.9)
    worth = weigh(chain, np.zeros(chain.shape, dtype=np.bool_))
    assert worth.usual[1] > 100


def test_a_state_that_is_never_come_back_to_is_nothing_to_reckon_from() -> None:
    # An engine that ends nothing is filled once and for all. In large chains a state may be as good as never there.
    ends = np.array([0.0, 2.0, 2.0, 2.0])
    chain = Chain(1.0, np.repeat(ends[:, None], 4, axis=1), np.zeros((4, 4)))
    table = np.zeros(chain.shape, dtype=np.bool_)
    worth = weigh(chain, table, (0, 0))
    assert worth.usual == (0, 3)
    assert worth.response_s == pytest.approx(weigh(chain, table).response_s)
    assert 3.0 < worth.in_flight < 4.0


def _imbalance(chain: Chain, table: np.ndarray, worth: Worth) -> float:
    """By how much each state's delay differs from what its neighbours' make of it, requests."""
    delay_s = worth.delay_s[:-1, :-1]
    held = np.add.outer(np.arange(delay_s.shape[0]), np.arange(delay_s.shape[1]))
    comes = np.where(table[:-1, :-1], worth.delay_s[1:, :-1], worth.delay_s[:-1, 1:]) - delay_s
    ends = chain.speculative[:-1, :-1] * (np.roll(delay_s, 1, 0) - delay_s)
    ends += chain.baseline[:-1, :-1] * (np.roll(delay_s, 1, 1) - delay_s)
    return float(np.abs(held - worth.in_flight + chain.arrivals_per_s * comes + ends).max())


@pytest.mark.parametrize("placement", Placement)
def test_prefill_makes_the_work_of_each_request_longer(placement: Placement) -> None:
    both = paces(find(KIMI), 8)
    bench = Bench(find(KIMI), placement, both, 8)
    asked = works(bench, Means(1000.0, 256.0, 0.0))
    chain = chain_of(bench, 1.0, asked)
    for role, rates in zip(ROLES, (chain.speculative[:, 0], chain.baseline[0, :]), strict=True):
        prefill_s = 1000.0 / bench.curve.prefill_tokens_per_s
        for n in (1, 5, 8):
            assert 1.0 / rates[n] == pytest.approx(asked[role].tokens / both[role].tok_s(n) + prefill_s)
    slowed = bool(chain.speculative[4, 6] < 0.7 * chain.speculative[4, 0])
    assert slowed is (placement is Placement.SHARED)
