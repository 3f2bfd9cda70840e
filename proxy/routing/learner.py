"""Keeps the measured curves true: what live traffic shows of both backends, and the curves corrected by it.

Pure: time is an argument, and equal evidence gives equal curves. What counts as evidence is in evidence.py, how it is
believed in belief.py, how curves follow in correction.py, which requests are sent to learn from in probing.py, and when
corrections are dropped again in harm.py. Who feeds it and takes its curves over is the desk's learning
(dispatch/learning.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp, log, sqrt
from typing import NamedTuple

from proxy.model import ROLES, EngineLoad, Role
from proxy.routing.belief import NO_LINE, Belief, Line
from proxy.routing.clock import Clock
from proxy.routing.company import Company, Gathered
from proxy.routing.contention import Alone, parted, steps
from proxy.routing.correction import Correction
from proxy.routing.curves import Curves, SpeedCurve
from proxy.routing.evidence import LEAST_STEPS, Seen, Source, by_answer, by_counter, by_moments
from proxy.routing.likeness import all_alike
from proxy.routing.trust import Trust, tolerated

# After so long without a word that can be true an engine is taken to have none, and answers speak for it.
SILENT_S = 30.0
# Answers of one backend are looked at so seldom at most: a look takes some 15 us, and twenty a second tell enough.
ANSWERS_APART_S = 0.05

# After so long without any answer that tells its tokens there is nothing to hold against an engine's word.
UNHEARD_S = 30.0

# Two looks that lie further apart are not put together: too much may have happened in between.
APART_S = 60.0
# So long at most the first of two is kept while an engine counts too few steps to tell anything.
GATHER_S = 10.0

# Time constant of the prompt tokens that a backend is asked to read, and the share of its time at most in which it is
# taken to read them: beyond that it would hardly decode.
ASKED_S, MOST_PREFILL = 30.0, 0.7
# The part of that time that must have passed at least for a mean to be made of what was asked.
LEAST_LOOKED = 0.05
# Tokens that were read for each that was guessed from the size of a body, at most: beyond, usage is no number.
MOST_READ = 4.0

# A backend may run so many times what the proxy gave it, and some more: others may use it too, and clients may have
# left. More is a broken count.
MOST_BESIDE, FEW = 3.0, 8.0

# Steps between two looks cannot have lasted longer than the time between, but for clocks that run apart and for what an
# engine tells some steps late. Sums that began anew in between look so.
LONGER, LATE_S = 1.2, 5.0

# What a step yields on shared GPUs has changed where it differs by so many standard deviations.
CERTAIN = 4.0

# The part of its time in flight that an answer waits for its first token at most: beyond, it tells nothing of the rest.
MOST_UNBEGUN = 0.9
# A longer answer counts as one of an hour.
MOST_LASTED_S = 3600.0

# Weight of the newest answer in the mean context of a backend's requests: the last twenty decide it.
NEWEST = 0.05


class Look(NamedTuple):
    """One poll of an engine. `held` are the desk's own sums of in flight and of its square, times seconds, None where
    it has none. `beside` may have disturbed it on shared GPUs: the requests of the other backend since its start, and
    its sequences now."""

    load: EngineLoad
    at_s: float
    held: tuple[float, float] | None = None
    beside: tuple[int, int] = (0, 0)


class Answer(NamedTuple):
    """An answer of one sequence: `in_flight` were on its backend in the mean, itself among them, None where that is not
    known; `uncached_tokens` of its prompt had to be read. `unbegun_share` of its time in flight had passed before its
    first token. `beside` says that the other backend had sequences too."""

    context_tokens: float
    uncached_tokens: float
    tokens: int
    tpot_s: float | None
    in_flight: float | None
    placed_at_s: float = float("inf")
    unbegun_share: float = 0.0
    beside: bool = False


class Told(NamedTuple):
    """What evidence tells: ln of the time for a token by that of the measured curve. `believed` is what was foretold of
    an answer, None where that is no test: its backend has changed on the way, or answers are what belief rests on."""

    bucket: int
    seen: Seen
    ln_ratio: float
    believed: float | None = None


@dataclass(slots=True)
class Side:
    """What is known of one backend. `line` is what is believed since the last turn."""

    belief: Belief
    line: Line = NO_LINE
    look: Look | None = None
    alone: Alone | None = None
    context_tokens: float = 0.0
    told_at_s: float = float("-inf")
    prompt_tok_s: float = 0.0
    asked_tokens: float = 0.0
    looked_at_s: float = float("inf")
    looked_share: float = 0.0
    read_share: float = 1.0
    answered_at_s: float = float("-inf")
    busy_share: float = 0.0
    unbegun_s: float = 0.0
    lasted_s: float = 0.0
    clock: Clock = field(default_factory=Clock)
    company: Company = field(default_factory=Company)
    gathered: Gathered = field(default_factory=Gathered)
    seen: int = 0
    source: Source = Source.ANSWERS
    trust: Trust = field(default_factory=Trust)
    prefill_known: bool = False

    @property
    def begun_share(self) -> float:
        """Of the time that requests are in flight, the part that follows their first token."""
        return 1.0 - self.unbegun_s / self.lasted_s if self.lasted_s > 0.0 else 1.0

    @property
    def acts(self) -> bool:
        """Whether what is believed may move a decision: its source has earned that, or there was nothing of our own to
        hold against it."""
        return self.trust.earned or not self.clock.watched_s

    @property
    def tolerated(self) -> float:
        """By how much answers may miss the engine's word."""
        return tolerated(self.busy_share, prefill_known=self.prefill_known)

    def missed(self, told: "Told") -> float:
        """By how much evidence misses what is believed."""
        return told.ln_ratio - self.line.at(told.bucket, max(1.0, told.seen.in_flight))

    def placed(self, context_tokens: float) -> None:
        """Take in what is asked."""
        self.context_tokens += (context_tokens - self.context_tokens) * (NEWEST if self.context_tokens else 1.0)
        self.asked_tokens += max(0.0, context_tokens)

    def reckon(self, prefill_tok_s: float | None, now_s: float) -> None:
        """Reckon how much of the time prompts are read, in which nobody decodes."""
        left = exp(-max(0.0, now_s - self.looked_at_s) / ASKED_S)
        self.looked_at_s = now_s
        self.prompt_tok_s = self.prompt_tok_s * left + self.asked_tokens / ASKED_S
        self.asked_tokens = 0.0
        self.looked_share = 1.0 - (1.0 - self.looked_share) * left  # of the time constant, since the start
        told = self.prompt_tok_s * self.read_share / max(LEAST_LOOKED, self.looked_share)
        self.prefill_known = prefill_tok_s is not None
        self.busy_share = 0.0 if prefill_tok_s is None else min(MOST_PREFILL, told / prefill_tok_s)

    def heard(self, answer: Answer) -> None:
        """Take in how much of what was asked had to be read, and how long answers wait for their first token."""
        if answer.context_tokens > 0.0:
            share = min(MOST_READ, max(0.0, answer.uncached_tokens / answer.context_tokens))
            self.read_share += NEWEST * (share - self.read_share)
        if answer.tpot_s is not None:  # long answers are in flight for longer
            unbegun_share = min(MOST_UNBEGUN, max(0.0, answer.unbegun_share))
            lasted_s = min(MOST_LASTED_S, answer.tokens * answer.tpot_s) / (1.0 - unbegun_share)
            self.unbegun_s += NEWEST * (unbegun_share * lasted_s - self.unbegun_s)
            self.lasted_s += NEWEST * (lasted_s - self.lasted_s)


class Learner:
    """What has been learned beside `curves`, which stay as they are. On `shared` GPUs a backend shows its speed while
    the other one is idle, and little of it else."""

    def __init__(self, curves: Curves, *, shared: bool = False) -> None:
        self.curves = curves
        self.correction = Correction(curves)
        self.sides = {role: Side(Belief()) for role in ROLES}
        self.moved: frozenset[Role] = frozenset()
        self.changed: frozenset[Role] = frozenset()
        self._turned_at_s = float("-inf")
        self._shared = shared
        self._alike = shared and all_alike(curves)

    @property
    def corrected(self) -> Curves:
        """The curves as they are believed to be by now."""
        return self.correction.corrected

    # ------------------------------------------------------------ evidence

    def placed(self, role: Role, context_tokens: float) -> None:
        """A request with so much context goes to a backend."""
        self.sides[role].placed(context_tokens)

    def polled(self, role: Role, look: Look) -> None:
        """Take in a poll of an engine. Of two in a row, the difference tells."""
        side = self.sides[role]
        before = side.look
        if before is not None and _is_little(before, look):
            return
        side.look = look
        if before is None or not 0.0 < look.at_s - before.at_s <= APART_S:
            side.gathered = Gathered()
            return
        contended = self._shared and (look.beside != before.beside or look.beside[1] > 0)
        if contended:
            side.gathered = Gathered()
        bucket = self._bucket(side.context_tokens)
        context = self.curves.contexts[bucket]
        curve = context.of(role)
        side.reckon(context.prefill_tok_s[ROLES.index(role)], look.at_s)
        seen = _between(before, look, side)
        if seen is None or curve is None or not _credible(seen, before, look):
            return
        side.told_at_s = look.at_s
        if contended:
            self._contended(role, bucket, seen, (before, look))
            return
        told = Told(bucket, seen, log(seen.ratio(_total(curve))))
        if side.trust.doubted and not side.trust.compare(side.missed(told), side.tolerated):
            return
        if side.trust.doubted:
            side.trust.turn()
        side.alone = None if side.clock.holds_more else _steps(before, look)
        self._believe(side, told, look.at_s)

    def _contended(self, role: Role, bucket: int, seen: Seen, looks: tuple[Look, Look]) -> None:
        """Take in what a backend shows while the other one had work all the time."""
        side, other = self.sides[role], self.sides[role.other]
        context, now, held = self.curves.contexts[bucket], _steps(*looks), min(each.beside[1] for each in looks)
        curve, beside = context.of(role), context.of(role.other)
        if now is None or curve is None or beside is None or now.tokens <= 0.0 or not held:
            return
        if side.alone is not None:  # the time of its steps is known: what they yield may have changed
            jump = log(side.alone.tokens / now.tokens)
            if abs(jump) > CERTAIN * sqrt(seen.variance):
                side.belief.move(jump, looks[1].at_s)
                side.alone = side.alone._replace(tokens=now.tokens)
        elif (
            not side.clock.holds_more
            and other.alone is not None
            and (own := parted(now, other.alone, held, _total(beside))) is not None
        ):
            self._believe(side, Told(bucket, own, log(own.ratio(_total(curve)))), looks[1].at_s)

    def answered(self, role: Role, answer: Answer, now_s: float) -> Told | None:
        """Take in an answer of one sequence; what it tells of its backend, None where that is nothing."""
        side = self.sides[role]
        bucket = self._bucket(answer.context_tokens)
        context = self.curves.contexts[bucket]
        curve = context.of(role)
        side.reckon(context.prefill_tok_s[ROLES.index(role)], now_s)
        side.heard(answer)
        if answer.tpot_s is None or answer.in_flight is None or curve is None or (self._shared and answer.beside):
            return None
        if 0.0 <= now_s - side.answered_at_s < ANSWERS_APART_S:
            return None
        side.answered_at_s = now_s
        seen = by_answer(answer.tpot_s * (1.0 - side.busy_share), answer.tokens, answer.in_flight)
        if seen is None:
            return None
        told = Told(bucket, seen, log(seen.ratio(_total(curve))))
        if side.trust.doubted or now_s - side.told_at_s >= SILENT_S:
            self._believe(side, told, now_s)
        elif answer.placed_at_s > side.belief.changed_at_s:
            if side.acts:
                told = told._replace(believed=told.ln_ratio - side.missed(told))
            if side.line.places and side.trust.compare(side.missed(told), side.tolerated):
                side.trust.turn()
                side.belief, side.line = Belief(), NO_LINE
        return told

    def _believe(self, side: Side, told: Told, now_s: float) -> None:
        side.seen += 1
        side.trust.earned = (
            side.trust.earned
            or told.seen.source is Source.TOKENS
            or side.clock.holds_all
            or (side.clock.watched_s >= UNHEARD_S and not side.lasted_s)
        )
        side.source = told.seen.source
        if side.belief.observe(told.bucket, told.seen, told.ln_ratio, now_s):
            side.line = side.belief.line(now_s)

    # ------------------------------------------------------------ curves

    def turn(self, now_s: float) -> None:
        """Correct the curves by all evidence, as far as that is material; `moved` tells whose are others by much, and
        `changed` whose backend is another than it was."""
        sides = self.sides.items()
        self.changed = frozenset(role for role, side in sides if side.belief.changed_at_s > self._turned_at_s)
        self._turned_at_s = now_s
        first, second = map(self.sides.__getitem__, ROLES)
        second.line = second.belief.line(now_s)
        # Where curves do not tell, what was not seen of speculation is like the other one as that was seen.
        first.line = first.belief.line(now_s, second.line if self._alike and second.acts else None)
        earned = {role: (side.belief, side.line) for role, side in sides if side.acts}
        self.moved = self.correction.follow(earned)

    def knows(self, role: Role) -> bool:
        """Whether anything is known of a backend."""
        return bool(self.sides[role].belief.bins)

    def known_s(self, role: Role, in_flight: float) -> float | None:
        """When a backend was last seen with about so many in flight, in the context of its requests; None: never."""
        side = self.sides[role]
        return side.belief.known_s(self._bucket(side.context_tokens), in_flight)

    def variance(self, role: Role, in_flight: float, now_s: float) -> float:
        """How well a backend is known with so many in flight or more: that of ln(seconds for a token)."""
        side = self.sides[role]
        return side.belief.variance(self._bucket(side.context_tokens), in_flight, now_s)

    def ratio(self, role: Role, in_flight: float) -> float:
        """Seconds for a token by those of the measured curve, in the context of its requests; 1: as measured."""
        side = self.sides[role]
        return side.line.ratio(self._bucket(side.context_tokens), in_flight)

    def _bucket(self, context_tokens: float) -> int:
        return self.curves.contexts.index(self.curves.at_context(context_tokens))


def _total(curve: SpeedCurve) -> Callable[[float], float]:
    return lambda n: n * curve.seconds_per_token(n)


def _is_little(before: Look, look: Look) -> bool:
    """Whether an engine has counted some steps, and too few for a word on its speed yet."""
    old, new = before.load.moments, look.load.moments
    if old is None or new is None or not 0.0 < look.at_s - before.at_s <= GATHER_S or min(len(old), len(new)) < 2:
        return False
    return 0.0 < new[1] - old[1] < LEAST_STEPS


def _held(before: Look, look: Look) -> tuple[float, float]:
    """In flight by the desk, and its square, times seconds; nothing where it does not know."""
    if before.held is None or look.held is None:
        return 0.0, 0.0
    return look.held[0] - before.held[0], look.held[1] - before.held[1]


def _credible(seen: Seen, before: Look, look: Look) -> bool:
    """Whether an engine can have run so many: not far more than the proxy gave it, which is all but some there is."""
    area_s, square_s = _held(before, look)
    return not 0.0 < area_s <= square_s or seen.in_flight <= MOST_BESIDE * square_s / area_s + FEW


def _steps(before: Look, look: Look) -> Alone | None:
    old, new = before.load.moments, look.load.moments
    return None if old is None or new is None else steps(old, new, look.load.ranks)


def _between(before: Look, look: Look, side: Side) -> Seen | None:
    old, new = before.load, look.load
    if new.moments is not None and old.moments is not None:
        return _by_steps(before, look, side) if new.ranks == old.ranks else None
    if new.generated is None or old.generated is None or new.ranks != old.ranks or new.generated < old.generated:
        side.gathered = Gathered()
        return None
    return _by_count(new.generated - old.generated, before, look, side)


def _by_steps(before: Look, look: Look, side: Side) -> Seen | None:
    """What moments show; of an engine whose steps hold more than decoding only the tokens count."""
    old, new, ranks, elapsed_s = before.load.moments, look.load.moments, look.load.ranks, look.at_s - before.at_s
    if old is None or new is None or (seen := by_moments(old, new, ranks)) is None:
        return None
    gained = [late - early for early, late in zip(old, new, strict=True)]
    if gained[2] * 1e-6 > ranks * (LONGER * elapsed_s + LATE_S):
        return None
    decoding = side.begun_share * (1.0 - side.busy_share)
    possible = side.clock.look(gained, _held(before, look), decoding, ranks, elapsed_s)
    if side.clock.holds_more:
        return _by_count(gained[5], before, look, side)
    return seen if possible else None


def _by_count(tokens: float, before: Look, look: Look, side: Side) -> Seen | None:
    """What some seconds of tokens show. They are shared by as many as the engine was given, or as many as it runs where
    that is another number."""
    elapsed_s, old, new = look.at_s - before.at_s, before.load.running, look.load.running
    (area_s, square_s), begun = _held(before, look), side.begun_share
    ran = 0.5 * (old + new)
    side.company.look(ran, area_s / elapsed_s, area_s * begun / elapsed_s, elapsed_s)
    waits = bool(before.load.waiting or look.load.waiting)
    running = (ran * elapsed_s, elapsed_s * (ran * ran + (new - old) ** 2 / 12.0))
    gathered = side.gathered
    gathered.add(tokens, (area_s * begun, square_s * begun * begun), running, elapsed_s, waits=waits)
    if gathered.elapsed_s < GATHER_S:
        return None
    side.gathered = Gathered()
    held = gathered.ran if side.company.strays or gathered.waits else gathered.held
    return by_counter(gathered.tokens, held, 1.0 - side.busy_share)
