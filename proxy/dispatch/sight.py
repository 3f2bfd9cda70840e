"""What a request sees of the two backends: who has room, where its prompt is, and which of them it waits for.

It owns the state that decisions read: rules, regime, and where conversations are. Nothing is decided or leased here
(desk.py), and the order of those who wait is in wire/.
"""

from collections.abc import Callable
from typing import NamedTuple

from proxy.dispatch.backends import Backends
from proxy.dispatch.plans import Plan
from proxy.model import ROLES, Change, ChangeKind, LoadSnapshot, Regime, Role, Traits, Whereabouts
from proxy.routing import policy, silence
from proxy.state.backend import Backend
from proxy.state.holdings import Holdings

# Bulky requests are told apart by eighths of a backend, of which each needs five at least. Finer, and a queue of many
# sizes would be looked at size by size; coarser, and one that needs all of a backend would keep back one that needs
# little more than half.
BULK = 8

_NONE: frozenset[Role] = frozenset()
_EITHER = frozenset(ROLES)
_ALONE = {role: frozenset((role,)) for role in ROLES}


class Lane(NamedTuple):
    """What those have in common of whom none finds a place when the first of them does not.

    `role` is the one backend that they wait for, None where they take either; `moved` says that the other one has
    failed them; `bulk` is what each needs in eighths of every backend that it waits for, where that is more than half
    of all of them, else empty. Those at `home` might go to the other backend, each at its own time, but wait for where
    their prompts are cached.
    """

    role: Role | None = None
    moved: bool = False
    bulk: tuple[int, ...] = ()
    home: bool = False


class Stand(NamedTuple):
    """How a request waits: in which `lane`, for which `roles`, whose next room it `claims`, and whether it `roams`: has
    a conversation that may be cached on either."""

    lane: Lane
    roles: frozenset[Role]
    claims: frozenset[Role]
    roams: bool


class Sight(Backends):
    """Both backends in the eyes of a request. `clock` returns monotonic seconds; `fresh_at_s` is when the policy of
    today began: its first regime is set back by a dwell, so as to be free to change."""

    def __init__(self, plan: Plan, clock: Callable[[], float]) -> None:
        super().__init__(plan, clock)
        self.rules = plan.rules
        self.regime = self._fresh_regime()
        self.holdings = Holdings()

    def snapshot(self) -> LoadSnapshot:
        """Both backends as they are now."""
        return self._seen(self.clock())

    def wanted(self, traits: Traits) -> Role | None:
        """The one backend that a request waits for when there is no room; None where it takes either."""
        state = self.holder(traits.state) if traits.state else None
        role = policy.preference(self.rules, traits, state)
        if role is None or role is state:
            return role
        snapshot = self.snapshot()
        beside = snapshot.of(role.other).eligible and not snapshot.of(role).eligible
        return role.other if beside else role

    def holder(self, state: int) -> Role | None:
        """The role whose engine holds a piece of state, by its hash; None where nobody is known to."""
        return self.holdings.holder(state, (self._speculative.shelf, self._baseline.shelf))

    def follows(self, traits: Traits) -> bool:
        """Whether it matters where the conversation of a request is cached."""
        return self.rules.affine and bool(traits.prefix or traits.conversation)

    def serves(self, role: Role) -> bool:
        """Whether requests may be sent to `role`, now or when it has room."""
        snapshot = self.snapshot()
        return snapshot.of(role).eligible or snapshot.all_down

    def may_move(self, backend: Backend) -> bool:
        """Whether what waits on a backend that stands still may go to the other one, see silence.py."""
        return silence.may_move(self.snapshot(), self._role_now(backend))

    def is_back(self, backend: Backend) -> bool:
        """Whether a backend that gave no sign of life takes requests again."""
        return silence.serves(self.snapshot().of(self._role_now(backend)))

    def serves_beside(self, failed: Backend) -> bool:
        """Whether requests may be sent to the other backend than `failed`, now or when it has room."""
        snapshot = self.snapshot()
        return snapshot.of(self._role_now(failed).other).eligible or snapshot.all_down

    def stand(self, traits: Traits, failed: Backend | None = None) -> Stand:
        """How a request waits that has found no place. `failed` is the backend that has failed it already.

        It claims every backend that it waits for: their next room is kept from those behind it. But none where it is
        bulky on all of them that are eligible: under steady traffic these never drain so far by themselves, and holding
        everybody up until they do would let one request stop the service.
        """
        snapshot, roams = self.snapshot(), False
        role = self._role_now(failed).other if failed is not None else self.wanted(traits)
        one = role
        if role is None:
            roams = self.follows(traits)
            one = policy.awaited(self.rules, self.regime, snapshot, traits.weight) or self._home_full(traits, snapshot)
        roles = _EITHER if one is None else _ALONE[one]
        bulk = () if traits.weight == 1 else _bulk(snapshot, roles, traits.weight)
        return Stand(Lane(role, failed is not None, bulk, bool(bulk) and roams), roles, _NONE if bulk else roles, roams)

    def claims(self, traits: Traits, failed: Backend | None = None) -> frozenset[Role]:
        """The backends whose next room a request that waits keeps from those behind it, see `stand`."""
        return self.stand(traits, failed).claims

    def has_room(self, roles: frozenset[Role], weight: int) -> bool:
        """Whether one of `roles` has room for a request, whether it takes any or not."""
        snapshot = self.snapshot()
        return any(policy.has_room(snapshot.of(role), weight) for role in roles)

    def terrain(self) -> tuple[object, ...]:
        """All on which it hangs how requests wait, but for what changes with each that comes or ends."""
        rules, snapshot = self.rules, self.snapshot()
        wishes = (rules.operator_pin, rules.allow_header, rules.request_rules, rules.effective_policy, rules.pin)
        sides = ((backend.url, snapshot.of(backend.role).eligible, backend.max_in_flight) for backend in self.backends)
        return (*wishes, rules.affinity, *sides)

    def follow(self) -> None:
        """Take the present count into the smoothed one: without requests nobody else does, and a scrape would show
        the past."""
        now_s = self.clock()
        self._age(now_s)
        self._follow(now_s)

    # ------------------------------------------------------------ inside

    def _fresh_regime(self) -> Regime:
        """The regime of a policy that has seen no request, and may change it with the first."""
        now_s = self.fresh_at_s = self.clock()
        return Regime(policy.first_role(self.rules), now_s - self.rules.dwell_s, smoothed_at_s=now_s)

    def _seen(self, now_s: float) -> LoadSnapshot:
        self._age(now_s)
        rules = self.plan.breaker
        return LoadSnapshot(now_s, self._speculative.view(rules, now_s), self._baseline.view(rules, now_s))

    def _whereabouts(self, traits: Traits) -> Whereabouts:
        if not self.rules.affine:
            traits = traits._replace(prefix=(), conversation=0)
        return self.holdings.whereabouts(traits, (self._speculative.shelf, self._baseline.shelf))

    def _home_full(self, traits: Traits, snapshot: LoadSnapshot) -> Role | None:
        """The home of a conversation that has no room, while the other backend has some: who waits, waits for home."""
        if not self.follows(traits):
            return None
        home = self._whereabouts(traits).home
        if home is None:
            return None
        weight = traits.weight
        beside = snapshot.of(home.other).eligible and policy.has_room(snapshot.of(home.other), weight)
        return home if beside and not policy.has_room(snapshot.of(home), weight) else None

    def _age(self, now_s: float) -> None:
        """Drop what has lingered long enough, each at its own instant, so that the smoothed count falls from then on
        and not from the next request on."""
        first, second = self._speculative.book, self._baseline.book
        while first.next_expiry_s <= now_s or second.next_expiry_s <= now_s:
            due_s = min(first.next_expiry_s, second.next_expiry_s)
            first.expire(due_s)
            second.expire(due_s)
            self._follow(due_s)

    def _follow(self, now_s: float) -> None:
        in_flight = self._speculative.book.in_flight + self._baseline.book.in_flight
        self._enter(policy.follow(self.rules, self.regime, in_flight, now_s))

    def _enter(self, regime: Regime) -> None:
        before, self.regime = self.regime.role, regime
        if before is not regime.role:
            self.on_change(Change(ChangeKind.REGIME, regime.role, before, regime.role))


def _bulk(snapshot: LoadSnapshot, roles: frozenset[Role], weight: int) -> tuple[int, ...]:
    """Eighths of each of `roles` that is eligible which a request needs that is bulky on all of them; else empty."""
    awaited = [snapshot.of(role) for role in ROLES if role in roles]
    loads = [load for load in awaited if load.eligible] or awaited
    if not all(policy.is_bulky(load, weight) for load in loads):
        return ()
    return tuple(-(-BULK * policy.share(load, weight) // (load.max_in_flight or 1)) for load in loads)
