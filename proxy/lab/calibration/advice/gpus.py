"""What the GPUs of both backends could be used for, and what is gained by it. Using them as they are: proposal.py."""

from collections.abc import Iterator
from dataclasses import dataclass

from proxy.lab.calibration.advice import choices, short_chain
from proxy.lab.calibration.advice.choices import ARM_OF, Choice, Speeds, Way
from proxy.lab.calibration.advice.kinds import Advice, AdviceKind
from proxy.lab.calibration.advice.proposal import placement_of
from proxy.lab.calibration.values import Arm, ContextFindings, Findings
from proxy.lab.calibration.words import percent, speed
from proxy.model import Placement
from proxy.routing.verdict import VerdictKind

# Within this an adaptive instance is as good as the better of two: what a pair of arms differs by anyway.
AS_GOOD = 0.03
# Within this a fixed limit is as good as placing by curves, at every load.
HAPROXY_MARGIN = 0.02
# Tokens verified per sequence from which the verification itself is what costs.
MANY_VERIFIED = 8


@dataclass(frozen=True, slots=True)
class Seen:
    """The first context and what was computed of it once."""

    findings: Findings
    context: ContextFindings
    placement: Placement
    speeds: Speeds
    rows: tuple[Choice, ...]

    @property
    def whole(self) -> bool:
        """Whether both backends have a curve."""
        return self.speeds.whole


def see(findings: Findings) -> Seen:
    """The first context, which must be there, with its ways compared."""
    context, placement = findings.main[0], placement_of(findings)
    rows = choices.at(context, choices.totals_of(context, placement), placement)
    return Seen(findings, context, placement, choices.speeds_of(context, placement), rows)


def use_adaptive(seen: Seen) -> Iterator[Advice]:
    """Adaptive instances, where measured as good everywhere; where not measured but likely to be possible, to try."""
    against = seen.context.against_best
    if against:
        worst = min(against, key=lambda one: one.log_ratio)
        mean = sum(one.log_ratio for one in against) / len(against)
        if worst.log_ratio < -AS_GOOD:
            yield Advice(
                AdviceKind.ADAPTIVE_SLOWER,
                f"The adaptive instance is {percent(-mean)} slower than the better of the two on average, at worst "
                f"{percent(-worst.log_ratio)} (at {worst.concurrency:g} in flight): that is what two kinds of server "
                "buy, for the GPUs of a second one.",
                {"worst": worst.log_ratio, "mean": mean},
            )
        else:
            yield Advice(
                AdviceKind.USE_ADAPTIVE,
                f"The adaptive instance is as good as the better of the two everywhere ({percent(worst.log_ratio)} at "
                f"worst, at {worst.concurrency:g} in flight; {percent(mean)} on average), so adaptive instances alone "
                "do the same with one kind of server.",
                {"worst": worst.log_ratio, "mean": mean, "gain": max(mean, 0.0)},
            )
        return
    facts = seen.findings.facts.get(Arm.SPECULATIVE)
    if facts is not None and facts.topk == 1 and not facts.adaptive and Arm.ADAPTIVE not in seen.findings.facts:
        yield Advice(
            AdviceKind.USE_ADAPTIVE,
            "The drafts are chains (topk 1), which engines can switch off by themselves under load "
            "(--speculative-adaptive in SGLang): calibrate an instance so started as the adaptive arm. Its gain is not "
            "known before.",
        )


def second_baseline(seen: Seen) -> Iterator[Advice]:
    """Two baselines, where the GPUs are there and speculation never pays, or they would be faster over all loads."""
    if not seen.whole or seen.placement is not Placement.SEPARATE:
        return
    now = {row.total: row for row in seen.rows if row.way is Way.MARGINAL}
    two = {n: _twice_baseline(seen.speeds, n) for n in now}
    total = max(now)
    # Mean over the loads, each alike, of how much faster a token comes.
    ratios = [now[n].pace_s / two[n].pace_s for n in now]
    mean = sum(ratios) / len(ratios) - 1
    never = seen.context.verdict.kind is VerdictKind.NEVER_SPECULATE
    if not never and mean < AS_GOOD:
        return
    ours, theirs = two[total], now[total]
    alone = seen.speeds.tok_s(Arm.BASELINE, 1)
    best_alone = max(seen.speeds.tok_s(arm, 1) for arm in ARM_OF.values())
    yield Advice(
        AdviceKind.SECOND_BASELINE,
        f"Run a second baseline on the speculative backend's GPUs: at {total} in flight two baselines would give "
        f"{speed(ours.tok_s)} tok/s, {percent(ours.tok_s / theirs.tok_s - 1)} more than the {speed(theirs.tok_s)} of "
        f"today's two at their best split, and a request that is alone would get {speed(alone)} tok/s (today at best "
        f"{speed(best_alone)}). Predicted from the baseline's curve, not measured.",
        {
            "total": float(total),
            "two_baselines": ours.tok_s,
            "now": theirs.tok_s,
            "gain": ours.tok_s / theirs.tok_s - 1,
            "mean_gain": mean,
        },
    )


def _twice_baseline(speeds: Speeds, total: int) -> Choice:
    """Two baselines with half of the sequences each."""
    less = total // 2
    more = total - less
    tok_s = speeds.tok_s(Arm.BASELINE, less) + speeds.tok_s(Arm.BASELINE, more)
    delay = speeds.delay(Arm.BASELINE, less) + speeds.delay(Arm.BASELINE, more)
    return Choice(Way.ONLY_BASELINE, total, 0, total, tok_s, delay / total)


def try_chain(seen: Seen) -> Iterator[Advice]:
    """A chain of drafts, where many tokens are verified for each one gained."""
    facts = seen.findings.facts.get(Arm.SPECULATIVE)
    if facts is None or seen.context.verdict.kind is VerdictKind.ALWAYS_SPECULATE:
        return
    if (facts.topk or 1) <= 1 and (facts.draft_tokens or 0) < MANY_VERIFIED:
        return
    told, numbers = short_chain.predicted(seen.speeds)
    drafts = f"{facts.num_steps or '?'}/{facts.topk or '?'}/{facts.draft_tokens or '?'}"
    yield Advice(
        AdviceKind.TRY_CHAIN,
        f"The drafts are {drafts} (steps/topk/tokens), so that each step verifies {facts.draft_tokens or 'many'} "
        "tokens of every sequence. Published chains, which verify 4 or fewer, lose less under load: calibrate with "
        f"3/1/4, then 2/1/3 and 1/1/2. {told}",
        numbers,
    )


def haproxy_or_crossover(seen: Seen) -> Iterator[Advice]:
    """Whether a fixed limit would do as well, else what placing by curves gains."""
    if not seen.whole:
        return
    best = choices.best_way(seen.placement)
    single = choices.best_single(seen.rows)
    over_fixed = choices.gains(seen.rows, best, Way.OVERFLOW)
    over_single = choices.gains(seen.rows, best, single) if single is not None else None
    if over_fixed is None or over_single is None or single is None:
        return
    numbers = {
        "over_single_mean": over_single.mean,
        "over_single_most": over_single.most,
        "over_overflow_mean": over_fixed.mean,
        "over_overflow_most": over_fixed.most,
    }
    crossings = len(seen.context.verdict.crossings)
    if seen.placement is Placement.SEPARATE and crossings == 1 and over_fixed.most <= HAPROXY_MARGIN:
        leave_at = choices.best_overflow(seen.speeds, sorted({row.total for row in seen.rows}))
        yield Advice(
            AdviceKind.HAPROXY_ENOUGH,
            f"A balancer that fills speculative to {leave_at} connections and sends the rest to baseline is within "
            f"{percent(over_fixed.most)} of placing by curves at every load, as long as each request is one sequence "
            "(n = 1) and contexts are like this one: for speed alone HAProxy is enough.",
            {**numbers, "leave_at": float(leave_at)},
        )
    elif over_single.most > 0:
        said = _gained(seen.placement, single, over_single, over_fixed)
        if seen.context.verdict.kind is VerdictKind.NEVER_SPECULATE:
            said = f"Until the GPUs of the speculative backend are put to better use: {said[0].lower()}{said[1:]}"
        yield Advice(AdviceKind.CROSSOVER_GAIN, said, numbers)


def _gained(placement: Placement, single: Way, over_single: choices.Gains, over_fixed: choices.Gains) -> str:
    alone = f"{single.removeprefix('only ')} alone"
    said = (
        f"Policy auto with these curves makes requests {percent(over_single.mean)} faster than {alone} on average over "
        f"the loads, at most {percent(over_single.most)} (at {over_single.most_at} in flight)"
    )
    if placement is Placement.SHARED:
        return f"{said}; what changes of regime cost is not in this."
    return (
        f"{said}, but with twice its GPUs; on the same GPUs {percent(over_fixed.mean)} faster than the best fixed "
        f"limit of policy overflow ({percent(over_fixed.most)} at most)."
    )
