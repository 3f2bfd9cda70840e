"""The text of docs/metrics.md, from what proxy/metrics/ and proxy/errors.py say. docs.py writes it."""

from collections.abc import Iterable, Iterator

import proxy.app  # noqa: F401 - the whole error tree is known only once every part is loaded
from proxy.closing import CloseReason
from proxy.errors import ConfigError, CrossoverError
from proxy.metrics import ERROR_EVENT, OTHER, Family, Metrics
from proxy.model import Outcome, Reason

HEAD = """\
# Metrics

<!-- Written by scripts/docs.py from proxy/metrics/ and proxy/errors.py: change it there. -->

`GET /metrics` on the operators' port (`admin`, 29000 by default) in Prometheus' text format. Counters and histograms
are fed when a request ends, gauges are read at the scrape. Durations are in seconds; what is in flight, running or
waiting is counted in sequences (prompts times `n`), unless the name says requests.

Labels come from the closed sets below, and `client` from the names in the operator's own keys file
(`listen.api_keys_file`, 1,000 at most). Nothing that a request says becomes one, be it a path, a header, a model or a
user, so the number of series is bounded however odd the traffic. `role` is `speculative` or `baseline`, and `none`
where a request never got a place. A label value appears once it has happened. The usual `process_*` and `python_gc_*`
metrics come along.

Questions that occupy no engine (model list, tokenising) and the proxy's own health answers are not counted here, but
where they are turned away or neither engine answers.

**Turned away or failed.** What ended badly counts once. `crossover_refusals_total` is what the proxy turned away and no
engine was asked: 429 and 503 for want of room (`queue_full`, `queue_timeout`, `bodies_full`, `too_many_connections`,
`out_of_sockets`), 401, 404 and the like. `crossover_failures_total` is what an engine was asked and failed, or the
proxy itself (`internal_error`); its `role` is `none` where that was no one engine's. `crossover_attempt_failures_total`
has beside it every attempt that an engine failed: a request that failover saved counts there alone, one that failed on
both engines twice. `crossover top` and the status page say *refused* and *failures* of the first two.

`/failures` and `crossover_requests_total` have what was let in and then ended in an error: also a body not read
to its end (413, 408, `bodies_full`), and a wait for room in vain. What is turned away at the door by its head alone
(401, 403, 404, 405, 501) never became a request: it is in `crossover_refusals_total`, and in the log as
`request_refused` with its id.

**Streams without usage.** Token counts are those that the answer tells. A stream tells them only where its client asked
by `stream_options: {"include_usage": true}`; other streams add nothing to `crossover_tokens_total` and
`crossover_tpot_seconds`, which then read low, and stay empty where no client asks. Nothing is estimated in their place.
What tells without usage: `crossover_engine_accept_length`, and, learned from the engines' own counts that the proxy
polls, `crossover_learned_ratio` and `crossover_speculation_gain_ratio` (with measured curves). Output of all requests
is in the engines' own metrics (`sglang:generation_tokens_total`, `vllm:generation_tokens_total`).

## Families
"""

REASONS = {
    Reason.PINNED: "Policy `pinned`.",
    Reason.OPERATOR_PIN: "Pinned at run time by `POST /pin`.",
    Reason.HEADER: "The client asked by `x-crossover-backend`, and `routing.allow_header` lets it.",
    Reason.RULE: "A rule of `routing.rules` matched.",
    Reason.REGIME: "Policies `threshold` and `consolidate`: the role that is favoured now.",
    Reason.STATE: "It names a stored response or a session, which only the engine that made it has.",
    Reason.AFFINITY: "Its conversation stays where most of its prompt is cached (`routing.affinity`).",
    Reason.CHEAPER: "Policy `marginal`: the backend where the request adds less delay, by measured curves.",
    Reason.ROOM: "Policy `overflow`: the speculative backend is below `leave_at`.",
    Reason.OVERFLOW: "The speculative backend is at `leave_at`; policy `consolidate`: the favoured one fails fast.",
    Reason.ONLY_ELIGIBLE: "The other backend is down, its circuit is open, or it drains.",
    Reason.OTHER_FULL: "The other backend was preferred and is at `max_in_flight`.",
    Reason.SILENT: "The other backend was preferred, and is silent: its probe is unanswered and nothing else comes.",
    Reason.RAMPING: "The other backend was preferred, has just recovered, and is given its share bit by bit.",
    Reason.FAILOVER: "The other backend has just failed this request.",
    Reason.PROBE: "Policies `marginal` and `consolidate`: the other one, to see how fast it is (`routing.learn`).",
    Reason.ALL_DOWN: "No backend is eligible: routed as if all were.",
    Reason.FULL: "Never counted here: without room a request waits, or is refused with a code below.",
}

OUTCOMES = {
    Outcome.FINISHED: "Answered to the end. An engine's refusal of a wrong request is such an answer too.",
    Outcome.FAILED_BEFORE_COMMIT: "Answered with an error: an engine's or the proxy's own, also 429 without a place.",
    Outcome.FAILED_AFTER_COMMIT: "The answer broke off after it had begun, or the engine put an error into it.",
    Outcome.CLIENT_GONE_WAITING: "The client left before its answer began; class `4xx`, 499 in the log.",
    Outcome.CLIENT_GONE_IN_STREAM: "The client left while its answer came.",
    Outcome.SHUT_DOWN: "The proxy ended it to shut down.",
}

CLOSE_REASONS = {
    CloseReason.SILENT: "It was opened, and nothing came within `listen.head_timeout_s`.",
    CloseReason.IDLE: "No further request came within `listen.keepalive_s`.",
    CloseReason.UNREAD: "The client took nothing of its answer for `listen.unread_timeout_s`.",
    CloseReason.FLOODED: "The client sent dozens of requests, or more than 64 KiB of them, before its answer.",
    CloseReason.OVER_LIMIT: "Over `listen.max_connections`, and without an answer: under TLS, or it sent nothing.",
    CloseReason.HANDSHAKE_FAILED: "What came was no TLS, or the two sides did not agree. On either port.",
    CloseReason.HANDSHAKE_LATE: "The TLS handshake took longer than `listen.head_timeout_s`. On either port.",
}


def metrics_page() -> str:
    """The page as Markdown."""
    chapters = (
        HEAD,
        *families(),
        "\n## Reasons of a decision\n",
        *table("reason", REASONS.items()),
        "\n## Outcomes of a request\n",
        *table("outcome", OUTCOMES.items()),
        "\n## Reasons of a connection's end\n",
        *table("reason", CLOSE_REASONS.items()),
        "\n## Codes of errors\n",
        *codes(),
    )
    return "\n".join(chapters) + "\n"


def table(name: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Words with what they mean."""
    yield f"| {name} | meaning |"
    yield "|---|---|"
    for word, text in rows:
        yield f"| `{word}` | {text} |"


def families() -> Iterator[str]:
    """A row for each family; long sets of label values are told below the table."""
    yield "| name | type | labels | meaning |"
    yield "|---|---|---|---|"
    for family in Metrics(lambda: None).families:  # type: ignore[arg-type,return-value]  # nothing is scraped here
        yield f"| `{family.name}` | {family.kind} | {labels(family)} | {family.text} |"


def labels(family: Family) -> str:
    """Names of the labels, each with its values where they are few and told nowhere else."""
    told = []
    for name, values in family.labels.items():
        brief = name in ("kind", "result", "bound")
        told.append(f"`{name}`: {', '.join(values)}" if brief else f"`{name}`")
    return "; ".join(told)


def codes() -> Iterator[str]:
    """A row for each code of an error, with the status that goes with it."""
    yield "| code | status | meaning |"
    yield "|---|---|---|"
    told = {ConfigError.code}  # ends a start or a reload, never a request
    for kind in tree(CrossoverError):
        if kind.code not in told:
            told.add(kind.code)
            yield f"| `{kind.code}` | {kind.status} | {meaning(kind)} |"
    yield f"| `{ERROR_EVENT}` | 200 | The engine reported an error inside a stream that had begun. |"
    yield f"| `{OTHER}` | | A code that is not on this list. |"


def tree(kind: type[CrossoverError]) -> Iterator[type[CrossoverError]]:
    """An error and all below it."""
    yield kind
    for each in kind.__subclasses__():
        yield from tree(each)


def meaning(kind: type[CrossoverError]) -> str:
    """What an error says of itself in its first paragraph."""
    if kind is CrossoverError:
        return "The proxy failed on the request; its log has the type and the place."
    text = (kind.__doc__ or "").partition("\n\n")[0]
    return " ".join(text.split())
