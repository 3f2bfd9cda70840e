"""A desk written the long way: every count is added up anew and every rule is asked at every step. No short cuts."""

from math import ceil, exp, inf

from fakes.plain_side import Side, fits_in, held
from fakes.rig import BASELINE, LINGER_S, SPECULATIVE

from proxy.dispatch import Assignment
from proxy.model import (
    NO_DEMAND,
    ROLES,
    BackendLoad,
    Because,
    CircuitState,
    Costs,
    Decision,
    Demand,
    LoadSnapshot,
    Placement,
    Policy,
    Reason,
    Regime,
    Role,
    Traits,
)
from proxy.routing import health
from proxy.routing.breaker import Event
from proxy.routing.delays import delays
from proxy.routing.demand import BYTES_PER_TOKEN, DEMAND_S, PEAK_S
from proxy.routing.health import Evidence, HealthRules
from proxy.routing.marginal import EXPECTED_TOKENS
from proxy.routing.outlook import outlook
from proxy.routing.paces import OVERLOADED_S, Paces
from proxy.routing.ramp import GOAL_IF_UNLIMITED
from proxy.routing.rules import Rules
from proxy.routing.threshold import NEAR

# How many of the two bounds each policy looks at, and whether at the smoothed count and the regime.
COUNTED = {
    Policy.OVERFLOW: (1, False),
    Policy.THRESHOLD: (2, True),
    Policy.CONSOLIDATE: (0, True),
    Policy.MARGINAL: (0, False),
    Policy.PINNED: (0, False),
}


class PlainDesk:
    """Every count added up anew and every rule asked at every step."""

    def __init__(self, rules: Rules, limits: tuple[int | None, int | None], now_s: float) -> None:
        self.rules = rules
        self.sides = {role: Side(role, limit) for role, limit in zip(ROLES, limits, strict=True)}
        self.consolidates = rules.effective_policy is Policy.CONSOLIDATE
        self.dwell_s = max(60.0, rules.min_dwell_s) if self.consolidates else rules.min_dwell_s
        first = (
            min((BASELINE, SPECULATIVE), key=lambda role: self.pace_s(role, NO_DEMAND)) if self.consolidates else None
        )
        self.regime = Regime(first or SPECULATIVE, since_s=now_s - self.dwell_s, smoothed_at_s=now_s)
        self.switches: list[Role] = []
        self.pin: Role | None = None

    def follow(self, in_flight: int, now_s: float) -> None:
        """The count in force until now into the mean, then the thresholds."""
        rules, before = self.rules, self.regime
        decay = exp((before.smoothed_at_s - now_s) / rules.smoothing_s) if rules.smoothing_s else 0.0
        smoothed = before.held + (before.smoothed - before.held) * decay if rules.smoothing_s else float(in_flight)
        if rules.smoothing_s and now_s == before.smoothed_at_s:
            smoothed = before.smoothed
        to_baseline = before.role is SPECULATIVE and smoothed >= rules.leave_at - NEAR
        to_speculative = before.role is BASELINE and smoothed <= rules.enter_at + NEAR
        demand, pays = before.demand, False
        elapsed_s = now_s - before.smoothed_at_s
        if rules.curves is not None and elapsed_s and demand.tok_s:
            left, flown = exp(-elapsed_s / DEMAND_S), demand.flown + before.held * elapsed_s
            demand = demand._replace(tok_s=demand.tok_s * left, prompt_tok_s=demand.prompt_tok_s * left, flown=flown)
        looked_s = now_s - demand.looked_at_s
        if self.consolidates and demand.tok_s and looked_s >= 0.25:
            elapsed_s = 0.0 if looked_s == inf else looked_s
            demand = self.lasting(demand, elapsed_s) if elapsed_s else demand
            demand = demand._replace(looked_at_s=now_s, flown=0.0)
            prompts, asked = demand.prompt_tok_s / demand.tok_s, self.asked(demand)
            here, there = (self.paces(role, demand) for role in (before.role, before.role.other))
            more = here.alone(asked, prompts) - there.alone(asked, prompts)
            faded = exp(-elapsed_s / PEAK_S)
            signed = more if before.role is SPECULATIVE else -more
            calm = here.alone(asked, prompts) >= 1.02 * there.alone(asked, prompts) and demand.excess * signed < 0.0
            excess = demand.excess * (exp(-elapsed_s / 300.0) if calm else faded) + signed * elapsed_s
            demand = demand._replace(peak_tok_s=max(asked, demand.peak_tok_s * faded), excess=excess)
            stands = demand.due_at_s < inf
            bursts = max(1.0, 4.0 * demand.spread)
            off = (asked * max(demand.answer_tokens, 1.0) * bursts / (2.0 * max(demand.lasted_s, DEMAND_S))) ** 0.5
            ends = (max(0.0, asked - off), asked + 3.0 * off)
            firm = all(here.alone(end, prompts) >= there.alone(end, prompts) for end in ends)
            share = here.decoding(demand.prompt_tok_s)
            rare = before.held > here.at_most((asked + off) / share, bursts**0.5)
            burst = here.demand_of(before.held) * share if rare else 0.0
            owed = excess if before.role is SPECULATIVE else -excess
            restless = demand.spread > 0.5
            for tok_s, least, lasts_s in ((asked, 1.02, 600.0), (burst, 1.1, 120.0)):
                if not tok_s or (tok_s is burst and tok_s <= (asked if firm else ends[1])):
                    continue
                if tok_s is asked and not firm:
                    continue
                ours, theirs = here.alone(tok_s, prompts), there.alone(tok_s, prompts)
                costs = smoothed * theirs * demand.answer_tokens / tok_s
                highest = tok_s >= demand.peak_tok_s and not restless
                wise = owed > costs or highest or ours - theirs >= 512
                saves = (ours - theirs) * lasts_s > costs
                pays = pays or (0.0 < least * theirs <= ours and (stands or (wise and saves)))
            if min(each.alone(asked, prompts) for each in (here, there)) >= 512:
                count, known = before.held, max(each.curve.points[-1].in_flight for each in (here, there))
                more = count >= 2.0 * known and there.curve.tok_s(count) >= 1.1 * here.curve.tok_s(count)
                pays = pays or (more and there.curve.tok_s(known) > here.curve.tok_s(known))
            settled = there.alone(asked, prompts)
            may = pays and now_s - before.since_s >= self.dwell_s
            due_at_s = min(demand.due_at_s, now_s) if may else inf
            pays = now_s - due_at_s >= 0.75
            demand = demand._replace(due_at_s=inf if pays else due_at_s)
        thresholds = rules.effective_policy is Policy.THRESHOLD and (to_baseline or to_speculative)
        role, since_s = before.role, before.since_s
        if now_s - before.since_s >= self.dwell_s and (thresholds or pays):
            if self.consolidates:
                demand = demand._replace(held=settled)
            role, since_s = role.other, now_s
            self.switches.append(role)
        self.regime = Regime(role, since_s, smoothed, now_s, in_flight, demand)

    def lasting(self, demand: Demand, elapsed_s: float) -> Demand:
        """The means of the time since the demand changed, and whether it has just done so."""
        lasted_s, flying = demand.lasted_s, demand.flown / elapsed_s
        left = exp(-elapsed_s / max(lasted_s, DEMAND_S))
        held = flying + (demand.held - flying) * left
        mean = demand.lasting_tok_s * left if lasted_s else demand.tok_s
        lasted_s = min(lasted_s + elapsed_s, 300.0)
        roots = [(tok_s * 30.0 / max(demand.answer_tokens, 1.0) + 0.375) ** 0.5 for tok_s in (demand.tok_s, mean)]
        square = (roots[0] - roots[1]) ** 2
        if square > 16.0 * max(0.25, demand.spread):
            mean, lasted_s = demand.tok_s, DEMAND_S
        spread = demand.spread + (square - demand.spread) * (1.0 - exp(-elapsed_s / 300.0))
        return demand._replace(held=held, lasting_tok_s=mean, lasted_s=lasted_s, spread=spread)

    def pace_s(self, role: Role, demand: Demand) -> float:
        paces, asked = self.paces(role, demand), self.asked(demand)
        share = paces.decoding(asked * demand.prompt_tok_s / demand.tok_s) if demand.tok_s else 1.0
        found_s = paces.at_demand(asked / share)
        return found_s if found_s >= OVERLOADED_S else found_s / share

    def paces(self, role: Role, demand: Demand) -> Paces:
        assert self.rules.curves is not None
        context = self.rules.curves.at_context(demand.context_tokens)
        curve = context.of(role)
        assert curve is not None
        return Paces(curve, context.prefill_tok_s[0 if role is SPECULATIVE else 1])

    def asked(self, demand: Demand) -> float:
        """The demand, or that at which so many are in flight on the favoured one."""
        assert self.rules.curves is not None
        if demand == NO_DEMAND:
            return 0.0
        here, asked = self.paces(self.regime.role, demand), demand.lasting_tok_s if demand.lasted_s else demand.tok_s
        return max(asked, here.demand_of(demand.held) * here.decoding(demand.prompt_tok_s)) if asked else 0.0

    def snapshot(self, now_s: float) -> LoadSnapshot:
        dues = {until_s for side in self.sides.values() for until_s, _ in side.ghosts if until_s <= now_s}
        for due_s in sorted(dues):
            for side in self.sides.values():
                side.ghosts = [ghost for ghost in side.ghosts if ghost[0] > due_s]
            self.follow(self.in_flight, due_s)
        return LoadSnapshot(now_s, *(self.sides[role].load(now_s) for role in ROLES))

    @property
    def in_flight(self) -> int:
        return sum(side.in_flight for side in self.sides.values())

    def assign(self, traits: Traits, now_s: float) -> tuple[Decision, int, bool]:
        """The decision, the weight that it leases and whether it is a probe."""
        seen = self.snapshot(now_s)
        self.follow(seen.in_flight, now_s)
        role, reason = self.choose(seen, traits)
        counts = (seen.speculative.in_flight, seen.baseline.in_flight)
        rules, regime = self.rules, self.regime
        bounds, kept = COUNTED[rules.effective_policy]
        levels = (
            regime.smoothed if kept else None,
            rules.enter_at if bounds == 2 else None,
            rules.leave_at if bounds else None,
            regime.role if kept else None,
            seen.speculative.recent_failures,
        )
        there = {each: self.cached(each, traits) for each in ROLES}
        outs = [self.out(seen, each, traits.weight) for each in ROLES]
        told = (self.told(seen, traits), *there.values(), rules.learned, *outs)
        because = Because(rules.effective_policy, *counts, *levels, *told)
        if role is None:
            return Decision(None, reason, self.regime, because), 0, False
        side, weight = self.sides[role], held(seen.of(role), traits.weight)
        probe = side.circuit.state is not CircuitState.CLOSED and side.passes(now_s)
        side.leases.append(weight)
        side.move(Event.ADMITTED, now_s)
        self.follow(self.in_flight, now_s)
        if self.rules.curves is not None:
            before, context, answer, mean_held, peak_tok_s, read, mean, lasted_s, *rest = self.regime.demand
            more = weight * self.tokens(traits) / DEMAND_S
            part = more / (before + more)
            context += (traits.prompt_bytes / BYTES_PER_TOKEN - context) * part
            answer += (self.tokens(traits) - answer) * part
            read += max(0.0, traits.prompt_bytes / BYTES_PER_TOKEN - there[role]) / DEMAND_S
            mean += weight * self.tokens(traits) / max(lasted_s, DEMAND_S) if lasted_s else 0.0
            asked = (before + more, context, answer)
            demand = Demand(*asked, mean_held, peak_tok_s, read, mean, lasted_s, *rest)
            self.regime = self.regime._replace(demand=demand)
        return Decision(role, reason, self.regime, because), weight, probe

    def taken(self, role: Role, traits: Traits) -> None:
        """An engine has read a prompt."""
        if self.rules.affine and self.rules.affinity is not None and self.rules.affinity.cache_tokens is not None:
            self.sides[role].keep(traits.prefix, self.rules.affinity.cache_tokens)

    def choose(self, seen: LoadSnapshot, traits: Traits) -> tuple[Role | None, Reason]:
        wanted, reason = self.prefer(seen, traits)
        firm = reason in (Reason.HEADER, Reason.OPERATOR_PIN, Reason.RULE)
        load, other = seen.of(wanted), seen.of(wanted.other)
        room = fits_in(load, traits.weight)
        held_back = self.is_held_back(load, other, traits.weight)
        role: Role | None = wanted
        if not load.eligible and not seen.all_down:
            role, reason = wanted.other, Reason.ONLY_ELIGIBLE
        elif not firm and self.is_shunned(load, other):
            role, reason = wanted.other, Reason.SILENT
        elif not room:
            waits = firm or (reason is Reason.REGIME and not self.may_spill(load, other, traits.weight))
            role, reason = (None if waits else wanted.other), Reason.OTHER_FULL
        elif held_back and not firm:
            role, reason = wanted.other, Reason.RAMPING
        if role is wanted.other:
            takes = fits_in(other, traits.weight) and not self.is_held_back(other, load, traits.weight)
            takes = takes and not self.is_shunned(other, load)
            role = role if takes and (other.eligible or seen.all_down) else None
        if role is None:
            return None, Reason.FULL
        return role, Reason.ALL_DOWN if seen.all_down else reason

    def out(self, seen: LoadSnapshot, role: Role, weight: int) -> str | None:
        """The first of what keeps requests from a backend."""
        load, other = seen.of(role), seen.of(role.other)
        if not load.eligible:
            return self.sides[role].out(seen.at_s)
        if self.is_shunned(load, other):
            return "silent"
        if not fits_in(load, weight):
            return "full"
        return "ramping" if self.is_held_back(load, other, weight) else None

    def may_spill(self, load: BackendLoad, other: BackendLoad, weight: int) -> bool:
        """Whether the other one alone would give as much as the one that is full."""
        apart = self.rules.placement is Placement.SEPARATE
        if not self.consolidates or apart or not load.eligible or not other.eligible:
            return True
        assert self.rules.curves is not None
        both = self.rules.curves.at_context(self.regime.demand.context_tokens)
        ours, theirs = both.of(load.role), both.of(other.role)
        assert ours is not None
        assert theirs is not None
        return theirs.tok_s(other.in_flight + weight) >= ours.tok_s(max(1, load.in_flight))

    def cached(self, role: Role, traits: Traits) -> int:
        return self.sides[role].holds(traits.prefix) if self.rules.affine else 0

    def stays(self, seen: LoadSnapshot, traits: Traits) -> Role | None:
        """Where most is cached, if it pays to stay there."""
        ours, theirs = (self.cached(role, traits) for role in ROLES)
        if ours == theirs or self.rules.affinity is None:
            return None
        home = SPECULATIVE if ours > theirs else BASELINE
        long = abs(ours - theirs) >= self.rules.affinity.min_cached_tokens
        costs = self.costs(seen, traits)
        if costs is None:
            busy = seen.speculative.in_flight + seen.speculative.recent_failures + traits.weight
            fits = busy <= 2 * self.rules.leave_at if home is SPECULATIVE else not seen.baseline.recent_failures
            return home if long and fits else None
        both_s = {SPECULATIVE: costs.speculative_s, BASELINE: costs.baseline_s}
        marginal, priced = self.rules.effective_policy is Policy.MARGINAL, self.rules.prefill_known
        most = 2.0 if long and not (marginal and priced) else 1.1 if marginal else 0.0
        return home if both_s[home] <= most * both_s[home.other] else None

    def prefer(self, seen: LoadSnapshot, traits: Traits) -> tuple[Role, Reason]:
        if self.pin is not None:
            return self.pin, Reason.OPERATOR_PIN
        if traits.asked is not None and self.rules.allow_header:
            return traits.asked, Reason.HEADER
        if traits.session and self.rules.request_rules:
            return BASELINE, Reason.RULE
        if self.rules.affine and (home := self.stays(seen, traits)) is not None:
            return home, Reason.AFFINITY
        if self.consolidates:
            return self.favoured(seen, traits)
        busy = seen.speculative.in_flight + seen.speculative.recent_failures
        fits = busy == 0 or busy + traits.weight <= self.rules.leave_at
        costs = self.costs(seen, traits)
        if costs is not None and self.rules.effective_policy is Policy.MARGINAL:
            return (SPECULATIVE if costs.speculative_s < costs.baseline_s else BASELINE), Reason.CHEAPER
        if self.rules.effective_policy is Policy.OVERFLOW:
            return (SPECULATIVE, Reason.ROOM) if fits else (BASELINE, Reason.OVERFLOW)
        if self.regime.role is SPECULATIVE and not fits:
            return BASELINE, Reason.OVERFLOW
        return self.regime.role, Reason.REGIME

    def tokens(self, traits: Traits) -> float:
        return EXPECTED_TOKENS if traits.max_tokens is None else min(EXPECTED_TOKENS, traits.max_tokens)

    def favoured(self, seen: LoadSnapshot, traits: Traits) -> tuple[Role, Reason]:
        role = self.regime.role
        if seen.of(role).recent_failures:
            steps_s = []
            for each in (role, role.other):
                assert self.rules.curves is not None
                curve, load = self.rules.curves.at_context(self.regime.demand.context_tokens).of(each), seen.of(each)
                assert curve is not None
                steps_s.append(curve.seconds_per_token(load.in_flight + load.recent_failures + traits.weight))
            if steps_s[0] > steps_s[1]:
                return role.other, Reason.OVERFLOW
        return role, Reason.REGIME

    def told(self, seen: LoadSnapshot, traits: Traits) -> Costs | None:
        if not self.consolidates:
            return self.costs(seen, traits)
        paces_s = [self.pace_s(role, self.regime.demand) for role in ROLES]
        first_s, second_s = (inf if pace_s >= OVERLOADED_S else self.tokens(traits) * pace_s for pace_s in paces_s)
        return Costs(first_s, second_s, inf in (first_s, second_s), seen.baseline.recent_failures)

    def costs(self, seen: LoadSnapshot, traits: Traits) -> Costs | None:
        if self.rules.curves is None:
            return None
        context, added = self.rules.curves.at_context(traits.prompt_bytes / BYTES_PER_TOKEN), []
        beyond = False
        assert context.speculative is not None
        assert context.baseline is not None
        first, second = context.prefill_tok_s
        tables = delays(context.speculative, first), delays(context.baseline, second)
        both = outlook(*tables, self.regime.demand)
        for role, ahead in zip(ROLES, both, strict=True):
            load, curve = seen.of(role), context.of(role)
            assert curve is not None
            n = load.in_flight + load.recent_failures
            more = n + traits.weight
            prefill_tok_s = context.prefill_tok_s[ROLES.index(role)]
            new = max(0.0, traits.prompt_bytes / BYTES_PER_TOKEN - self.cached(role, traits))
            prefill_s = new / prefill_tok_s * ahead.stopped(more) if prefill_tok_s else 0.0
            added.append(self.tokens(traits) * ahead.added(n, traits.weight) + prefill_s)
            beyond |= curve.extrapolated(more)
        return Costs(*added, beyond, seen.baseline.recent_failures)

    def is_shunned(self, load: BackendLoad, beside: BackendLoad) -> bool:
        return load.eligible and load.silent and beside.eligible and not beside.silent

    def is_held_back(self, load: BackendLoad, beside: BackendLoad, weight: int) -> bool:
        ramps = [each.recovered_s is not None and each.recovered_s < self.rules.ramp_s for each in (load, beside)]
        alone = not beside.eligible or self.is_shunned(beside, load)
        if not ramps[0] or ramps[1] or alone or load.in_flight == 0 or load.recovered_s is None:
            return False
        goal = GOAL_IF_UNLIMITED if load.max_in_flight is None else load.max_in_flight
        kept = load.role is SPECULATIVE and self.rules.effective_policy in (Policy.OVERFLOW, Policy.THRESHOLD)
        goal = min(goal, self.rules.leave_at) if kept else goal
        return load.in_flight + weight > ceil(goal * load.recovered_s / self.rules.ramp_s)

    def settle(self, place: Assignment, now_s: float, *, lingers: bool) -> None:
        side, weight = self.sides[place.backend.role], place.lease.weight
        side.leases.remove(weight)
        there = sum(weight for _, weight in side.ghosts)
        most = inf if side.limit is None else max(1, side.limit // 4)
        stays = int(min(weight, max(0, most - there))) if lingers else 0
        side.ghosts += [(now_s + LINGER_S, stays)] if stays else []
        self.snapshot(now_s)
        self.follow(self.in_flight, now_s)

    def observe(self, role: Role, evidence: Evidence, now_s: float) -> None:
        side = self.sides[role]
        before, side.health = side.health.up, health.advance(HealthRules(), side.health, evidence, now_s)
        if before is False and side.health.up:
            side.recovered_at_s = now_s
            side.cached = []
