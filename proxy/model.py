"""The frozen values that cross module borders. No behaviour beyond derived properties, no I/O, no clock.

What is made anew for every request is a NamedTuple, built in less than half the time of a dataclass, as all else is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Role(StrEnum):
    """What a backend is for. Exactly one backend is configured for each role."""

    SPECULATIVE = "speculative"
    BASELINE = "baseline"

    @property
    def other(self) -> "Role":
        """The role that a request fails over to."""
        return Role.BASELINE if self is Role.SPECULATIVE else Role.SPECULATIVE


ROLES = (Role.SPECULATIVE, Role.BASELINE)
# By these names wherever a request passes: Python 3.11 takes ten times as long to find a member through its class. The
# files that decide bind members of other enums in the same way.
SPECULATIVE, BASELINE = ROLES


class Outcome(StrEnum):
    """How a lease ended: every one with exactly one of these."""

    FINISHED = "finished"
    FAILED_BEFORE_COMMIT = "failed_before_commit"
    FAILED_AFTER_COMMIT = "failed_after_commit"
    CLIENT_GONE_WAITING = "client_gone_waiting"
    CLIENT_GONE_IN_STREAM = "client_gone_in_stream"
    SHUT_DOWN = "shut_down"


class CircuitState(StrEnum):
    """Closed passes requests, open refuses them, half-open passes a leased number of probes."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Placement(StrEnum):
    """Whether the two backends have their own GPUs (capacity adds up) or contend for the same ones."""

    SEPARATE = "separate"
    SHARED = "shared"


class Policy(StrEnum):
    """The routing rule the operator asked for; `auto` resolves by placement and by what was measured."""

    AUTO = "auto"
    MARGINAL = "marginal"
    CONSOLIDATE = "consolidate"
    THRESHOLD = "threshold"
    OVERFLOW = "overflow"
    PINNED = "pinned"


class Reason(StrEnum):
    """Why a request went where it went. A closed set: it is a metric label."""

    PINNED = "pinned"  # policy `pinned`
    OPERATOR_PIN = "operator_pin"  # pinned at run time through the admin port
    HEADER = "header"  # the client asked by x-crossover-backend and may
    RULE = "rule"  # a rule of routing.rules matched
    REGIME = "regime"  # policies `threshold` and `consolidate`: the favoured role of the moment
    STATE = "state"  # it names something that only the engine which made it has
    AFFINITY = "affinity"  # it stays where most of its prompt is cached
    CHEAPER = "cheaper"  # policy `marginal`: the smaller predicted delay
    ROOM = "room"  # policy `overflow`: speculative below leave_at
    OVERFLOW = "overflow"  # policy `overflow`: speculative is at leave_at; `consolidate`: the favoured one fails
    ONLY_ELIGIBLE = "only_eligible"  # the other backend is down, open or draining
    OTHER_FULL = "other_full"  # the preferred backend is at max_in_flight
    SILENT = "silent"  # the preferred backend gives no sign of life, and the other one does
    RAMPING = "ramping"  # the preferred backend has just recovered and is given its share bit by bit
    FAILOVER = "failover"  # the first backend failed this request before commit
    PROBE = "probe"  # policies `marginal` and `consolidate`: the other one, to see how fast it is now
    ALL_DOWN = "all_down"  # no backend is eligible: routed as if all were
    FULL = "full"  # no room anywhere: the request waits or is refused


class Dialect(StrEnum):
    """The wire form of an answer: decides how an error inside a stream is said and what ends a stream."""

    CHAT = "chat"  # /v1/chat/completions
    COMPLETIONS = "completions"  # /v1/completions
    RESPONSES = "responses"  # /v1/responses
    MESSAGES = "messages"  # /v1/messages (Anthropic)
    GENERATE = "generate"  # /generate (native)
    OLLAMA = "ollama"  # /api/chat, /api/generate: NDJSON
    PLAIN = "plain"  # everything that does not stream


class Traits(NamedTuple):
    """What routing may know of one request, read from a copy of its body.

    `weight` is the number of sequences the engine will run (prompts x n, at least 1); `prompt_bytes` is the size of
    the received body; `constrained` says that the output is bound by a grammar, a schema or a required tool;
    `session` that the request names engine-side session state; `asked` is the role the client asked for by header;
    `max_tokens` is the most that one sequence may generate, None where the client set no limit. `prefix` tells which
    prompts begin alike: a hash for each block of 512 tokens, of that block and all before it; `conversation` is a hash
    of what the client calls the conversation, `state` one of the state that `session` speaks of; 0 is no name.
    """

    weight: int = 1
    stream: bool = False
    model: str | None = None
    prompt_bytes: int = 0
    constrained: bool = False
    session: bool = False
    asked: Role | None = None
    max_tokens: int | None = None
    prefix: tuple[int, ...] = ()
    conversation: int = 0
    state: int = 0


class Whereabouts(NamedTuple):
    """Where what a request needs is believed to be: tokens of its prompt that either engine has cached, `home`, the
    role that holds more of them or had the conversation last, and the role that holds the `state` it names, or None."""

    speculative_tokens: int = 0
    baseline_tokens: int = 0
    home: Role | None = None
    state: Role | None = None

    def at(self, role: Role) -> int:
        """Tokens cached on one role."""
        return self.speculative_tokens if role is SPECULATIVE else self.baseline_tokens


NOWHERE = Whereabouts()


class BackendLoad(NamedTuple):
    """One backend at one instant, as the decision sees it.

    `in_flight` counts sequences leased and not settled, lingering ones included; `max_in_flight` is the limit in
    force (None: none known); `recent_failures` weighs as load, so that one that fails fast looks busy. `eligible` is
    health, circuit and the operator's wish together, `out` which of them says no; `recovered_s` is how long ago it came
    back from being down or an open circuit (None: it never was). `silent`: it gives no sign of life (silence.py).
    """

    role: Role
    in_flight: int = 0
    max_in_flight: int | None = None
    recent_failures: int = 0
    eligible: bool = True
    recovered_s: float | None = None
    out: str | None = None
    silent: bool = False


class LoadSnapshot(NamedTuple):
    """Both backends at one instant; `at_s` is monotonic seconds."""

    at_s: float
    speculative: BackendLoad
    baseline: BackendLoad

    def of(self, role: Role) -> BackendLoad:
        """The load of one role."""
        return self.speculative if role is SPECULATIVE else self.baseline

    @property
    def in_flight(self) -> int:
        """Sequences in flight on both backends."""
        return self.speculative.in_flight + self.baseline.in_flight

    @property
    def all_down(self) -> bool:
        """Whether no backend is eligible; requests are then routed as if both were."""
        return not (self.speculative.eligible or self.baseline.eligible)


class Demand(NamedTuple):
    """Expected output tok/s of late, means of context and answer in tokens of those that asked, unread prompt tok/s. As
    of `looked_at_s` policy consolidate keeps the mean since it changed `lasted_s` ago, that of those in flight, faded
    peak, spread (lasting.py), `excess` (sequences times seconds speculative would have held more), `flown` since."""

    tok_s: float = 0.0
    context_tokens: float = 0.0
    answer_tokens: float = 0.0
    held: float = 0.0
    peak_tok_s: float = 0.0
    prompt_tok_s: float = 0.0
    lasting_tok_s: float = 0.0
    lasted_s: float = 0.0
    spread: float = 0.0
    excess: float = 0.0
    looked_at_s: float = float("-inf")
    flown: float = 0.0
    due_at_s: float = float("inf")  # since when each look has found a change due


NO_DEMAND = Demand()


class Regime(NamedTuple):
    """Which role the policies threshold and consolidate favour and since when, with the numbers behind it.

    `since_s` and `smoothed_at_s` are monotonic seconds; `smoothed` is in sequences, and so is `held`: the count in
    force since then, towards which `smoothed` moves until the next one. `demand` is known for consolidate alone.
    """

    role: Role = Role.SPECULATIVE
    since_s: float = float("-inf")
    smoothed: float = 0.0
    smoothed_at_s: float = float("-inf")
    held: float = 0.0
    demand: Demand = NO_DEMAND


class Costs(NamedTuple):
    """What a request was predicted to add on either backend: seconds of delay, its own and that of all others there.

    Policy consolidate tells how long an answer would take if that backend served all demand; infinite: more than it was
    measured to give. `extrapolated`: one of the two lies outside what was measured; `baseline_failures` weigh as load.
    """

    speculative_s: float
    baseline_s: float
    extrapolated: bool = False
    baseline_failures: int = 0


class Because(NamedTuple):
    """The numbers a decision was made on, for header, log and ring buffer. Counts are before the new request.

    What the policy in force does not look at is None. `recent_failures` are the speculative backend's, which weigh as
    load on it. `costs` are None where no measured curves tell them. The two after them are the tokens of the prompt
    that either engine was believed to have cached; `learned` says that the curves were corrected by live traffic. The
    last two say why a backend took nothing new (routing/out.py).
    """

    policy: Policy
    speculative_in_flight: int
    baseline_in_flight: int
    smoothed: float | None
    enter_at: int | None
    leave_at: int | None
    regime: Role | None
    recent_failures: int = 0
    costs: Costs | None = None
    speculative_cached: int = 0
    baseline_cached: int = 0
    learned: bool = False
    speculative_out: str | None = None
    baseline_out: str | None = None

    @property
    def speculative_cost_s(self) -> float | None:
        """What the request was predicted to add on the speculative backend; None where that is not known."""
        return None if self.costs is None else self.costs.speculative_s

    @property
    def baseline_cost_s(self) -> float | None:
        """What the request was predicted to add on the baseline backend; None where that is not known."""
        return None if self.costs is None else self.costs.baseline_s


class Decision(NamedTuple):
    """Where one request goes and why. `role` is None when every backend is full (reason `full`)."""

    role: Role | None
    reason: Reason
    regime: Regime
    because: Because


class Usage(NamedTuple):
    """Token counts that an engine reported for one answer; 0 means that it did not say."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says of itself at start-up (`/server_info` and `/model_info`); None where it does not say.

    `kv_tokens` is how many tokens its cache holds, 0 where it keeps no prefixes; `started` is a number that is another
    after each start. `notices_leaving` is known of its kind: whether it ends an answer before the first byte of which
    its client left.
    """

    model: str | None = None
    version: str | None = None
    context_length: int | None = None
    weight_version: str | None = None
    max_running_requests: int | None = None
    speculative_algorithm: str | None = None
    speculative_adaptive: bool = False
    kv_tokens: int | None = None
    started: float | None = None
    notices_leaving: bool = True


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """One poll of an engine's own load. `at_s` is the engine's wall-clock instant of the snapshot, unix seconds.

    `moments` are the cumulative decode moments (steps, sum b, sum t_us, sum b*b, sum b*t_us, sum generated) over those
    data-parallel `ranks` that tell any, which step side by side; None where none does. `kv_tokens` is how many tokens
    its cache holds, over all ranks; `generated` what it has generated since its start, None where it does not say.
    """

    running: int
    waiting: int
    at_s: float | None = None
    max_running_requests: int | None = None
    accept_length: float | None = None
    moments: tuple[float, ...] | None = None
    version: str | None = None
    ranks: int = 1
    kv_tokens: int | None = None
    generated: float | None = None


class RequestFacts(NamedTuple):
    """What is known when a request has ended, for metrics and the log line. Durations are in seconds.

    `route` is the template of the allow-list, never the path the client sent; `client` is an address, `client_name` the
    name of its key, None where none is asked for. `ttft_s` is request head read to first content written downstream;
    `tpot_s` needs usage; `overhead_s` is what the proxy itself added until the request was on its way upstream, without
    queueing. `failure` is the code of the error that ended it, `first_failure` of the one for which it moved, and
    `failure_status` and `first_failure_status` what the engine answered there; `url` is of the backend that had it
    last, whose role a reload may have changed since; `held_up`: the client took the answer slower than it came, so that
    its durations are no word on the backend. `trace_id` is of its trace where that is recorded. Of one that did not end
    well `backend_out` says if its backend was `down` or `silent`, `silent_s` how long nothing had come from it.
    """

    request_id: str
    route: str
    method: str
    outcome: Outcome
    status: int
    decision: Decision | None
    traits: Traits
    attempts: int = 1
    failure: str | None = None
    first_failure: str | None = None
    duration_s: float = 0.0
    queue_s: float = 0.0
    overhead_s: float = 0.0
    ttft_s: float | None = None
    tpot_s: float | None = None
    usage: Usage = Usage()
    client: str | None = None
    client_name: str | None = None
    url: str | None = None
    held_up: bool = False
    failure_status: int | None = None
    first_failure_status: int | None = None
    trace_id: str | None = None
    backend_out: str | None = None
    silent_s: float | None = None


class ChangeKind(StrEnum):
    """What changed in the proxy's view of the world; a closed set, used as log event and metric label."""

    REGIME = "regime_changed"
    CIRCUIT = "circuit_changed"
    HEALTH = "health_changed"
    PIN = "pin_changed"
    DRAIN = "drain_changed"
    SILENCE = "silence_changed"
    LEARNING = "learning_suspended"


@dataclass(frozen=True, slots=True)
class Change:
    """One change, to be logged and counted. `role` is None where no single backend is meant; `numbers` may say why."""

    kind: ChangeKind
    role: Role | None
    before: str
    after: str
    numbers: Mapping[str, float | str] = field(default_factory=dict)


class DecisionRecord(NamedTuple):
    """One decision as the ring buffer keeps it. `at_s` is monotonic seconds; `weight` in sequences."""

    at_s: float
    request_id: str
    route: str
    weight: int
    attempt: int
    decision: Decision
