"""Measures a cell on the engine model under a virtual clock: a calibration of hours in seconds, the truth known.

The load and the counting are those of the stand over HTTP, less the sockets. What an engine does in a step is in
lab/engine.py, what cells add up to in findings.py.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random

from proxy.lab.acceptance import Acceptance
from proxy.lab.calibration.stand.counting import LEAST_STEPS, quantiles
from proxy.lab.calibration.values import Arm, ArmFacts, Cell, Ending, FirstToken, Measurement, Source, Span
from proxy.lab.calibration.virtual.load import Counted, VirtualLoad, prompt_tokens_of
from proxy.lab.curves import Curve
from proxy.lab.engine import Engine, Sequence
from proxy.lab.engine_options import EngineOptions
from proxy.lab.introspection import Introspection
from proxy.lab.step_time import StepTime
from proxy.model import Role

# An instant to count from, so that the same seed writes the same record; no wall clock is read here.
VIRTUAL_MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)

# Decode steps and steps x sequences that are enough for one window: an accepted length scatters by half of its mean,
# so 2000 draws leave 1 %, as 20 s at one sequence do. Fewer look worse than life, more cost time.
ENOUGH_STEPS = 100
ENOUGH_DRAWS = 2000

# Share of a window that is enough to settle: no memory is left in the model once all sequences decode.
SETTLING = 0.25

# Below this share of what was asked for, the rest waited. As in the stand over HTTP.
QUEUED_BELOW = 0.9

_ROLES = {Arm.SPECULATIVE: Role.SPECULATIVE, Arm.BASELINE: Role.BASELINE, Arm.ADAPTIVE: Role.SPECULATIVE}

_FLAGS = (
    "tp_size",
    "dp_size",
    "pp_size",
    "chunked_prefill_size",
    "max_running_requests",
    "schedule_policy",
    "page_size",
)


@dataclass(frozen=True, slots=True)
class FasterTime:
    """Time per token of the faster of two arms at each batch, and `tax` (a share) for having the choice.

    One token a step, so that the choice between the two is the only thing that is modelled.
    """

    speculative: StepTime
    baseline: StepTime
    tokens_per_step: float
    tax: float

    def step_ms(self, batch: float, context_tokens: float) -> float:
        """As `StepTime.step_ms`."""
        drafted = self.speculative.step_ms(batch, context_tokens) / self.tokens_per_step
        return min(drafted, self.baseline.step_ms(batch, context_tokens)) * (1.0 + self.tax)


class VirtualStand:
    """The stand of a campaign on engine models that follow `curve`; the same seed and cell give the same measurement.

    `jitter` is the sigma of each step's time, `cell_noise` of each cell's speed (two runs of one cell on a real box
    differ by 1 to 3 %), `drift` the share of speed that both arms lose in an hour. `limits` are running sequences at
    most, by default what engines take when nobody says. `adaptive_tax` adds the third arm: the faster of the two at
    each batch, slower by that share. Without `moments` the engines tell only what clients see. `whole` runs every
    second of a span; otherwise a window ends where it is exact enough, and the clock goes on to where it would be.
    """

    def __init__(
        self,
        curve: Curve,
        seed: int,
        *,
        jitter: float = 0.03,
        cell_noise: float = 0.01,
        drift: float = 0.0,
        limits: Mapping[Arm, int] | None = None,
        prefill_tokens_per_s: float | None = None,
        adaptive_tax: float | None = None,
        moments: bool = True,
        whole: bool = False,
    ) -> None:
        self.curve = curve
        self._seed = seed
        self._cell_noise = cell_noise
        self._drift = drift
        self._moments = moments
        self._whole = whole
        self._tax = adaptive_tax
        self._now_s = 0.0
        self._asked = 0
        self._rng = Random(seed)
        arms = [Arm.SPECULATIVE, Arm.BASELINE, *([] if adaptive_tax is None else [Arm.ADAPTIVE])]
        self._options = {
            arm: EngineOptions(
                curve=curve.name,
                role=_ROLES[arm],
                max_running_requests=None if limits is None else limits.get(arm),
                prefill_tokens_per_s=prefill_tokens_per_s,
                jitter=jitter,
            )
            for arm in arms
        }
        self._engines = {arm: self._engine(arm) for arm in arms}
        self._loads = {arm: VirtualLoad(engine) for arm, engine in self._engines.items()}

    async def facts(self) -> Mapping[Arm, ArmFacts]:
        """What each engine says of itself."""
        return {arm: self._facts(arm) for arm in self._engines}

    async def measure(self, cell: Cell, span: Span) -> Measurement:
        """One cell, in no time: the clock moves on by what it would have taken."""
        load = self._loads[cell.arm]
        begun_s = self._now_s
        self._set_pace(cell)
        load.begin(cell, begun_s, self._lengths(cell))
        load.run_until_all_joined()
        settled_s = load.now_s + span.settle_s
        load.run(span.settle_s, *self._enough(SETTLING))
        load.open_window()
        load.run(span.window_s, *self._enough(1.0))
        counted = load.close_window()
        load.end()
        self._now_s = settled_s + span.window_s
        return self._measured(cell, counted, settled_s, self._now_s - begun_s)

    async def first_token(self, arm: Arm, prompt_tokens: int) -> FirstToken | None:
        """One prompt alone, in no time: the clock moves on by what it would have taken."""
        self._asked += 1
        engine = self._engines[arm]
        self._rng.seed(f"{self._seed}/{self.curve.name}/{arm}/prompt {self._asked}")
        engine.limits = replace(engine.limits, time_scale=math.exp(self._drift * self._now_s / 3600.0))
        engine.submit(Sequence(-self._asked, prompt_tokens, 1, 1))
        begun_s = self._now_s
        while engine.busy:
            self._now_s += engine.step().duration_s
        return FirstToken(prompt_tokens, self._now_s - begun_s)

    @property
    def true_prefill_tok_s(self) -> float:
        """Prompt tokens a second that both engines take in, without noise."""
        return self._engines[Arm.BASELINE].limits.prefill_tokens_per_s

    def now_s(self) -> float:
        """The virtual clock, seconds since the stand was made."""
        return self._now_s

    async def rest(self) -> None:
        """Nothing to wait for: a cell's load ends with the cell."""

    def true_tok_s(self, arm: Arm, concurrency: int) -> float:
        """Output tok/s that the engine has without noise and with `concurrency` sequences decoding, at any limit."""
        running = min(concurrency, self._engines[arm].limits.max_running_requests)
        return 1000.0 * self._tokens_per_step(arm) * running / self._step_time(arm).step_ms(running, 0.0)

    def _engine(self, arm: Arm) -> Engine:
        acceptance = Acceptance(self.curve.tokens_per_step, self.curve.num_steps + 1)
        limits = self._options[arm].limits(self.curve)
        return Engine(self._step_time(arm), limits, self._rng, acceptance if arm is Arm.SPECULATIVE else None)

    def _step_time(self, arm: Arm) -> StepTime:
        if arm is not Arm.ADAPTIVE:
            return self.curve.step_time(_ROLES[arm])
        arms = (self.curve.step_time(Role.SPECULATIVE), self.curve.step_time(Role.BASELINE))
        return FasterTime(*arms, self.curve.tokens_per_step, self._tax or 0.0)

    def _tokens_per_step(self, arm: Arm) -> float:
        return self.curve.tokens_per_step if arm is Arm.SPECULATIVE else 1.0

    def _set_pace(self, cell: Cell) -> None:
        """Give the cell its own speed, and its own chance: neither what came before nor another curve shares it."""
        self._rng.seed(self._chance(cell))
        noise = self._rng.gauss(0.0, self._cell_noise)
        engine = self._engines[cell.arm]
        engine.limits = replace(engine.limits, time_scale=math.exp(noise + self._drift * self._now_s / 3600.0))

    def _lengths(self, cell: Cell) -> Random | None:
        return Random(f"{self._chance(cell)}/lengths") if cell.condition.ending is Ending.NATURAL else None

    def _chance(self, cell: Cell) -> str:
        return f"{self._seed}/{self.curve.name}/{cell}"

    def _enough(self, share: float) -> tuple[float, float]:
        return (math.inf, math.inf) if self._whole else (share * ENOUGH_STEPS, share * ENOUGH_DRAWS)

    def _measured(self, cell: Cell, counted: Counted, opened_at_s: float, spent_s: float) -> Measurement:
        tokens = counted.gained("generated_tokens")
        seen = Measurement(
            cell=cell,
            at=(VIRTUAL_MIDNIGHT + timedelta(seconds=opened_at_s)).isoformat(timespec="milliseconds"),
            window_s=counted.window_s,
            requests=len(counted.ended),
            tokens=tokens,
            source=Source.USAGE,
            gross_tok_s=tokens / counted.window_s,
            prompt_tokens=prompt_tokens_of(cell.condition),
            ttft_s=quantiles(counted.first_tokens_s),
            tpot_s=quantiles([ended.tpot_s for ended in counted.ended if ended.tokens > 1]),
            request_tok_s=quantiles([ended.tok_s for ended in counted.ended]),
            chunk_gap_p99_s=None if (gaps := quantiles(counted.gaps_s)) is None else gaps.p99,
            spent_s=spent_s,
        )
        return self._with_moments(seen, counted) if self._moments else seen

    def _with_moments(self, seen: Measurement, counted: Counted) -> Measurement:
        steps, batches, spent_us, _, _, tokens = counted.moments
        prompt_tokens = counted.gained("prompt_tokens")
        verified = counted.gained("verify_calls")
        running, told = counted.after.running, steps >= LEAST_STEPS
        batch = batches / steps if told else running
        return replace(
            seen,
            source=Source.MOMENTS if told else seen.source,
            decode_tok_s=1e6 * tokens / spent_us if told else None,
            batch=batch,
            tokens_per_step=tokens / batches if told else None,
            accept_length=counted.gained("generated_tokens") / verified if verified else None,
            kv_use=counted.after.used_tokens / self._engines[seen.cell.arm].limits.kv_tokens,
            cache_hit_rate=counted.gained("cached_tokens") / prompt_tokens if prompt_tokens else None,
            queued=max(batch, running) < QUEUED_BELOW * seen.cell.concurrency,
        )

    def _facts(self, arm: Arm) -> ArmFacts:
        options, engine = self._options[arm], self._engines[arm]
        said = Introspection(options, self.curve, engine.limits).server_info(engine.books(), "virtual", 0)
        return ArmFacts(
            arm=arm,
            url=f"virtual://{arm}",
            engine="sglang",
            model=said["served_model_name"],
            version=said["version"],
            max_running_requests=said["max_running_requests"],
            kv_tokens=said["max_total_tokens"],
            speculative_algorithm=said["speculative_algorithm"],
            num_steps=said["speculative_num_steps"],
            topk=said["speculative_eagle_topk"],
            draft_tokens=said["speculative_num_draft_tokens"],
            adaptive=arm is Arm.ADAPTIVE,
            accelerator=self.curve.hardware,
            accelerators=said["tp_size"],
            flags={name: str(said[name]) for name in _FLAGS},
        )
