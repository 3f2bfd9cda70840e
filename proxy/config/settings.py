"""The settings in force: one frozen model for each section of the file, with meaning, unit, default and range of a key.

The keys of `routing` are in routing_keys.py, those of `traces` in traces_keys.py. Reading a file is not here
(loading.py), nor what keys may not be together (conflicts.py). The descriptions of the keys are the one source of the
commented example, of the reference page and of the JSON Schema.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, SecretStr

from proxy.config.addresses import checked_host, checked_key, checked_origin, checked_url
from proxy.config.key_files import Sources
from proxy.config.routing_keys import Routing
from proxy.config.sections import MAX_SEQUENCES, WORDS, FileName, Section, Word
from proxy.config.traces_keys import Traces
from proxy.model import Placement, Role
from proxy.protocol.routes import EngineKind
from proxy.routing.breaker import BreakerRules
from proxy.routing.health import HealthRules
from proxy.routing.policy import Rules
from proxy.routing.retries import RetryRules

# A day. No wait in front of an engine is meant to be longer; more is a unit mistake (milliseconds).
MAX_WAIT_S = 86400

EXAMPLE_URLS = {Role.SPECULATIVE: "http://127.0.0.1:30001", Role.BASELINE: "http://127.0.0.1:30002"}


def _secret(key: SecretStr) -> SecretStr:
    checked_key(key.get_secret_value())
    return key


Host = Annotated[str, AfterValidator(checked_host), Field(json_schema_extra={WORDS: "an IP address or a host name"})]
Url = Annotated[str, AfterValidator(checked_url), Field(json_schema_extra={WORDS: "http:// or https://, host, port"})]
Key = Annotated[SecretStr, AfterValidator(_secret), Field(json_schema_extra={WORDS: "one word of printable ASCII"})]
Origin = Annotated[
    str,
    AfterValidator(checked_origin),
    Field(json_schema_extra={WORDS: "an origin such as https://page.example, or *"}),
]
Port = Annotated[int, Field(ge=0, le=65535)]


class Tls(Section):
    """The certificate of a port."""

    cert_file: FileName
    """File with the certificate in PEM, followed by those between it and its authority; a relative path counts from
    this file's folder. Required."""
    key_file: FileName
    """File with the certificate's private key in PEM, not encrypted. Required."""
    client_ca_file: FileName | None = None
    """File with certificates of authorities in PEM. Clients must then show a certificate by one of them; null asks for
    none."""


class Listen(Section):
    """The port of the clients."""

    host: Host = "0.0.0.0"
    """Address to listen on. 127.0.0.1 serves this machine alone; :: serves IPv6 and IPv4."""
    port: Port = 30000
    """Port to listen on; 0 takes any free port and logs it. Change it when another server has this one."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=1 << 34)] = 67108864
    """Largest request body; a larger one is answered 413. Raise it for many images in one request."""
    body_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Longest pause of a client while it sends its body; after it the answer is 408. Raise it for slow uplinks."""
    unread_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 300.0
    """Longest time for which a client may take nothing of its answer; then its connection is closed, since the engine
    would wait for it and its sequences would count for ever."""
    keepalive_s: Annotated[float, Field(gt=0, le=3600)] = 75.0
    """How long an idle client connection stays open. Keep it above the idle time of a load balancer in front."""
    api_keys_file: Annotated[str, Field(min_length=1)] | None = None
    """File of the clients that may come in, one a line: a name and the SHA-256 of its key, as `crossover key NAME`
    prints them. A client sends its key as Authorization: Bearer, x-api-key or api-key; without a right one the answer
    is 401, and only the health paths are open. The key goes no further than here: engines never see it. A changed file
    is taken over like this one. A relative path counts from this file's folder. null: no key is asked for, and a
    client's own goes on to the engine."""
    cors_origins: Annotated[
        tuple[Origin, ...],
        Field(strict=False, examples=[["https://page.example"]], json_schema_extra={WORDS: "a list of origins"}),
        BeforeValidator(lambda value: () if value is None else value),
    ] = ()
    """Origins of web pages whose scripts may call this port from a browser, such as https://page.example or
    http://localhost:3000; "*" alone lets every page. Pages send their key in a header of their own, never a cookie.
    Empty: no page may read an answer, unless an engine says otherwise."""
    min_body_bytes_per_s: Annotated[int, Field(ge=0, le=1 << 30)] = 256
    """Least rate of a client that sends its body, on average over each body_timeout_s; below it the answer is 408. It
    keeps one that sends a byte now and then from holding a place for ever; 0: any byte will do."""
    max_held_body_bytes: Annotated[int, Field(ge=1024, le=1 << 40)] = 1073741824
    """Most bytes of request bodies in memory at once, of all requests that are read, wait or run before their answer
    begins; a further one is answered 503 with Retry-After. Set it to what the machine can spare."""
    max_connections: Annotated[int, Field(ge=1, le=1_000_000)] = 10000
    """Most client connections at once; a further one is answered 503 with Retry-After, or closed at once under TLS.
    Each stream takes two descriptors, so keep it below half of the limit of open files; let health probes ask the admin
    port, which has no such limit."""
    head_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    """Longest time from the first byte of a request, and for the first one of a connection from its opening, to the
    end of its headers; after it the answer is 408. A TLS handshake may take as long."""
    max_head_bytes: Annotated[int, Field(ge=1024, le=1 << 20)] = 65536
    """Largest request line and headers, together; larger ones are answered 431. Raise it for very long cookies."""
    max_headers: Annotated[int, Field(ge=8, le=10_000)] = 128
    """Most headers of a request; more are answered 431. A change holds for new connections."""
    tls: Tls | None = None
    """Serve TLS (1.2 or newer) by this certificate; null serves plain HTTP. The files are watched: once they change,
    new connections get the new certificate, and open ones go on. Turning TLS on or off takes a restart."""


class Admin(Section):
    """The port of the operators: metrics, status, decisions, reload, drain. It asks for `token` where one is set."""

    host: Host = "127.0.0.1"
    """Address to listen on. Set a token before you widen it: whoever reaches the port can drain the proxy."""
    port: Port = 29000
    """Port to listen on; 0 takes any free port and logs it. Change it when another server has this one."""
    token: Key | None = None
    """What operators and scrapers send as Authorization: Bearer, or browsers as the password of any user, usually
    "${VARIABLE}"; without it every path but /health is answered 401. null: whoever reaches the port by an
    address, by localhost or by `host` may do all, and by any other name only scrape."""
    token_file: Annotated[str, Field(min_length=1)] | None = None
    """File that holds the token, instead of `token`; a relative path counts from this file's folder. A changed file is
    taken over like this one."""
    tls: Tls | None = None
    """Serve TLS (1.2 or newer) by this certificate; null serves plain HTTP. The files are watched: once they change,
    new connections get the new certificate, and open ones go on. Turning TLS on or off takes a restart."""


class Backend(Section):
    """One instance of the model."""

    url: Url = Field(examples=list(EXAMPLE_URLS.values()))
    """Where the engine listens, without a path: each request brings its own. Required."""
    engine: Annotated[EngineKind, Word] = EngineKind.SGLANG
    """Which server runs there; it decides how its load is read and which routes are open. openai is any server that
    speaks that API; it tells no load and no limit. Where the two differ, clients have the routes that both know."""
    api_key: Key | None = None
    """Key sent to the engine in place of the client's, usually "${VARIABLE}". null passes the client's own
    key on, which is right when the engines check the keys of clients themselves."""
    api_key_file: Annotated[str, Field(min_length=1)] | None = None
    """File that holds the key, instead of `api_key`; a relative path counts from this file's folder. A changed
    file is taken over like this one."""
    max_in_flight: Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_SEQUENCES)] = "auto"
    """Most sequences in flight there; further requests go to the other backend or wait. auto reads the engine's own
    limit (max_running_requests, or llama.cpp's slots). Set a number when the engine slows down before that limit."""


class Backends(Section):
    """The two instances of one model. Both are needed, and each must be reachable under its own url."""

    speculative: Backend
    """The instance with speculative decoding: fast for each request while few run."""
    baseline: Backend
    """The instance without speculation: more tokens per second when many run."""

    def of(self, role: Role) -> Backend:
        """The settings of one role's backend."""
        return self.speculative if role is Role.SPECULATIVE else self.baseline


class Timeouts(Section):
    """How long each step may take. There is no limit on the whole of an answer."""

    connect_s: Annotated[float, Field(gt=0, le=60)] = 2.0
    """Longest wait for a connection to a backend; after it the other one is tried. Raise it for distant backends."""
    first_byte_s: Annotated[float, Field(gt=0, le=MAX_WAIT_S)] = 600.0
    """Longest wait for the first byte of an answer. It covers the engine's own queue and the prefill, and for
    answers that do not stream all of the generation: raise it for long ones. An engine that goes down without a word is
    not waited for so long where the other one serves."""
    stall_s: Annotated[float, Field(gt=0, le=MAX_WAIT_S)] = 300.0
    """Longest silence inside an answer that has begun. Raise it when long prefills of others hold streams up."""
    drain_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 180.0
    """How long requests in flight may go on after a stop was asked for; the rest is then ended with an error. Keep it
    below the time that the supervisor waits before it kills."""
    settle_s: Annotated[float, Field(ge=0, le=600)] = 5.0
    """How long new requests are still served after readiness has failed, so that load balancers can turn away. Set it
    above the time that yours needs to notice; 0 without one."""
    linger_s: Annotated[float, Field(ge=0, le=3600)] = 5.0
    """How long a sequence still counts as in flight when its client left before the first token: the engine may
    notice only then, and goes on working. Raise it when prefills are long; 0 for engines that stop at once."""


class Queue(Section):
    """Where requests wait, first come first served, when every eligible backend is at max_in_flight."""

    max_waiting: Annotated[int, Field(ge=0, le=MAX_SEQUENCES)] = 100
    """Most requests waiting; a further one is answered 429 with Retry-After. 0: nobody waits. Raise it for
    batch clients that rather wait than come again."""
    max_wait_s: Annotated[float, Field(gt=0, le=MAX_WAIT_S)] = 60.0
    """Longest wait for room; after it the answer is 503 with Retry-After. Keep it below the patience of clients."""


class Health(Section):
    """How backends are watched. Tokens that flow count as health too. One whose answer is late (twice as long as the
    slowest of late, a second at least) and of which nothing else comes gets no new requests that the other can take."""

    interval_s: Annotated[float, Field(ge=0.1, le=300)] = 1.0
    """Time between two probes of a backend. They are cheap and never generate; raise it only to quieten access logs."""
    timeout_s: Annotated[float, Field(ge=0.1, le=300)] = 5.0
    """Longest wait for the answer to a probe; later is a miss. Engines answer late in long prefills: raise
    it when a busy backend is called unhealthy."""
    max_misses: Annotated[int, Field(ge=1, le=100)] = 3
    """Misses in a row after which a backend is unhealthy. Lower notices a dead one sooner, higher forgives more."""
    min_hits: Annotated[int, Field(ge=1, le=100)] = 2
    """Answers in a row after which it is healthy again. Raise it when a backend comes and goes."""


class Circuit(Section):
    """When requests themselves show that a backend fails. Errors of clients and busy answers do not count."""

    max_failures: Annotated[int, Field(ge=1, le=1000)] = 5
    """Failures in a row after which the circuit opens and the backend gets no requests. Lower spares clients failures,
    higher forgives more."""
    open_s: Annotated[float, Field(ge=0.1, le=3600)] = 10.0
    """How long it stays open before requests are tried on it again. Raise it for backends that need long to start."""
    max_probes: Annotated[int, Field(ge=1, le=100)] = 1
    """Most requests at a time that try a backend whose circuit was open. Raise it only under heavy traffic."""


class Retries(Section):
    """How many further attempts may be made before an answer has begun; never after. This bounds the extra load."""

    max_ratio: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Further attempts that one request earns: 0.1 allows at most a tenth more load. 0 leaves only the reserve."""
    reserve: Annotated[int, Field(ge=0, le=10_000)] = 10
    """Further attempts that can be saved up in calm times: a short failure is hidden from so many requests at once.
    Raise it when many requests run at a time and a backend is restarted often."""


class Log(Section):
    """One line for each request and each event, on standard output. Never a prompt, a key or a body."""

    format: Literal["json", "text"] = "json"
    """json for log collectors, text for reading on a terminal."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level that is written. debug for finding a fault, warning when the access log is kept elsewhere."""
    sample: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the lines of requests that went well which is written; all that failed, failed over or were refused have
    theirs. Which ones are written follows from their ids, so that all lines of a request are there or none, and each
    has the share as `sample`. Lower it when the log costs too much; `crossover replay` needs 1."""
    redact: Annotated[
        tuple[Literal["client", "client_name"], ...],
        Field(strict=False, examples=[["client"]], json_schema_extra={WORDS: "a list of client, client_name"}),
        BeforeValidator(lambda value: () if value is None else value),
    ] = ()
    """What is left out of the lines of requests: client is the address, client_name the name of the key. Lines of what
    operators do keep the operator's address."""

    def way(self) -> tuple[Literal["json", "text"], str, float, tuple[str, ...]]:
        """What logging is set up by."""
        return self.format, self.level, self.sample, self.redact


class Settings(Section):
    """Settings of Crossover."""

    listen: Listen = Listen()
    admin: Admin = Admin()
    backends: Backends
    placement: Annotated[Placement, Word] = Placement.SEPARATE
    """separate: each backend has its own GPUs, so their capacity adds up. shared: both are on the same GPUs and slow
    each other down."""
    routing: Routing = Routing()
    timeouts: Timeouts = Timeouts()
    queue: Queue = Queue()
    health: Health = Health()
    circuit: Circuit = Circuit()
    retries: Retries = Retries()
    log: Log = Log()
    traces: Traces = Traces()

    _sources: Sources = PrivateAttr(default_factory=Sources)

    @property
    def sources(self) -> Sources:
        """Which files the settings came from, and the clients that one of them named."""
        return self._sources

    def read_from(self, sources: Sources) -> Self:
        """The same settings, from these files."""
        copy = self.model_copy()
        copy._sources = sources
        return copy

    def rules(self) -> Rules:
        """What routing needs to know; a pin at run time is not part of the settings."""
        routing = self.routing
        return Rules(
            policy=routing.policy,
            placement=self.placement,
            leave_at=routing.leave_at,
            enter_at=routing.enters_at(),
            min_dwell_s=routing.min_dwell_s,
            smoothing_s=routing.smoothing_s,
            pin=routing.pin,
            allow_header=routing.allow_header,
            request_rules=tuple(rule.request_rule() for rule in routing.rules),
            ramp_s=routing.ramp_s,
            curves=self._sources.curves,
            goals=routing.slo.goals(),
            affinity=routing.affinity.affinity(),
        )

    def breaker_rules(self) -> BreakerRules:
        """The rules of both circuits."""
        return BreakerRules(self.circuit.max_failures, self.circuit.open_s, self.circuit.max_probes)

    def health_rules(self) -> HealthRules:
        """The rules by which probes judge."""
        return HealthRules(self.health.max_misses, self.health.min_hits)

    def retry_rules(self) -> RetryRules:
        """The rules of the retry budget."""
        return RetryRules(self.retries.max_ratio, self.retries.reserve)
