"""The text of docs/logs.md and the JSON Schema of a request's line; docs.py writes both, a test asks the code.

What a field means is said here, since no code says it; names of events and fields are those of the code.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from proxy.model import CircuitState, Outcome, Policy, Reason, Role
from proxy.routing.out import Out

HEAD = """\
# Logs

<!-- Written by scripts/docs.py from scripts/docs_logs.py: change it there. -->

One line an event, on standard output: JSON (`log.format: json`, the default) or text for a terminal. `log.level` is the
least level that is written. Each line has `event`, `level` and `timestamp` (UTC, ISO 8601). Fields that have nothing to
say are left out. Durations are in seconds and end in `_s`; sizes end in `_bytes`; what is in flight is in sequences.

No line has a prompt, an answer, a header, a query or a key. Of a client's own words there is its request id alone
(`X-Request-Id`, visible ASCII); a failure is told by its type and the lines it came through, never by its message.
Control characters are escaped, so one event is one line. Whoever does not read the lines holds nothing up: up to 10,000
wait, and then `log_lines_dropped` stands for those that are lost. Lines of level `warning` and above, operators' acts
among them, have room for 2,000 more.

## Fewer lines

`log.sample: 0.1` keeps the lines of a tenth of the requests that went well: answered to the end, at the first attempt,
with a status below 400. All others have theirs: failures, failovers, refusals, clients who left. Which ones are kept
follows from the request id alone (CRC-32 of it, below the share of 2^32), so that all lines of a request are there or
none, also of several proxies. A line that might have been left out has the share as `sample`: to count requests, count
it as 1 / `sample`. Metrics count all. `crossover replay` needs a log of all requests.

`log.redact: [client, client_name]` leaves the client's address, or the name of its key, out of all lines of requests.

    grep '"event":"request_settled"' access.log | grep '"failure"' | grep -o '"failure":"[a-z_]*"' | sort | uniq -c
    grep '"request_id":"THE_ID"' access.log                               # all of one request
    grep '"trace_id":"THE_ID"' access.log                                 # those of one trace
    grep '"event":"audit"' access.log                                     # who steered

## Rotation

Crossover opens no log file: standard output stays what it was at the start, and SIGHUP reloads the configuration and
nothing else. A file that is moved away therefore gets the lines that follow, too. Of what rotates:

- **journald** (the systemd unit) by itself, by `SystemMaxUse=` of `journald.conf`; containers by their log driver
  (`docker run --log-opt max-size=100m --log-opt max-file=5`) or by the kubelet.
- **A file**: append (`>>`), and let logrotate copy it and empty it. What is written between the two, some
  milliseconds, is lost. With `>` the lines after that begin where the old ones ended, behind zero bytes.

      crossover serve crossover.yaml >> /var/log/crossover/access.log

      # /etc/logrotate.d/crossover
      /var/log/crossover/access.log {
          daily
          rotate 14
          compress
          delaycompress
          missingok
          copytruncate
      }

- **A pipe**, where no line may be lost: `crossover serve crossover.yaml | systemd-cat -t crossover`, or a program that
  rotates what it reads. Signals go to `crossover`, not to the shell. When the reader ends, lines are dropped and
  requests are served.

## Lines of operators' acts

`audit` is written for each pin, unpin, drain, undrain, reload and stop, and for each request of the operators' port
that is refused. `via` tells how it came: `port`, `signal` (SIGHUP; SIGTERM or SIGINT) or `file` (a changed file).
`user` is the name in a Basic authorization that was let in, as `curl -u ada:TOKEN` sends it; nobody checks it, so it is
for telling honest people apart. It is left out where it is no plain name of at most 32 characters or holds the token.
Who is refused is told by address alone. The lines are warnings, so that `log.level: warning` keeps them.

    {"act":"pin","via":"port","address":"10.0.0.7","user":"ada","before":null,"after":"baseline","event":"audit",...}

## Events
"""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: what it means, and of which JSON type it is, or which words it may have."""

    name: str
    text: str
    kind: str = "string"
    words: tuple[str, ...] = ()
    always: bool = False

    def schema(self) -> dict[str, Any]:
        """As JSON Schema has it."""
        least = {} if self.kind not in ("integer", "number") else {"minimum": 0}
        words = {"enum": list(self.words)} if self.words else {}
        return {"description": self.text, "type": self.kind, **least, **words}


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its levels, when it is written, and its fields beside the three of every line."""

    name: str
    level: str
    text: str
    fields: tuple[Field, ...] = ()


ROLES = tuple(Role)
ROLE = Field("role", "The backend that is meant.", words=ROLES)
MESSAGE = Field("message", "What it is, with its mend.")
ERROR = (
    Field("error", "The type of the exception."),
    Field("trace", "The lines it came through, innermost last.", "array"),
)
CLIENT = (
    Field("client", "The client's address."),
    Field("client_name", "The name of its key in `listen.api_keys_file`, where keys are asked for."),
)
REQUEST_ID = Field("request_id", "Of the client (`X-Request-Id`) or made here; engines have it too.", always=True)
METHOD = Field("method", "The request's method.", always=True)
ROUTE = Field("route", "The route of the allow-list, never the path that was sent.", always=True)
STATUS = Field("status", "The status that the client was sent; 0 where none was, 499 where it left before.", "integer")
SAMPLE = Field("sample", "The share of such lines that is written, where that is not all (`log.sample`).", "number")
COUNTS = "in flight on the {} backend when it was decided, without this request."

SETTLED = (
    REQUEST_ID,
    Field("trace_id", "The trace that it is recorded in, in 32 hexadecimal digits, where `traces.enabled` is on."),
    *CLIENT,
    METHOD,
    ROUTE,
    Field(STATUS.name, STATUS.text, STATUS.kind, always=True),
    Field("outcome", "How it ended; docs/metrics.md has what each means.", words=tuple(Outcome), always=True),
    Field("failure", "The code of the error that ended it; docs/metrics.md has what each means."),
    Field("failure_status", "The HTTP status that the engine had given when it failed so.", "integer"),
    Field("first_failure", "The code of the error for which it moved to the other backend."),
    Field("first_failure_status", "The HTTP status that the first engine had given.", "integer"),
    Field(
        "backend_out",
        "Of one that did not end well: its backend counted as down, or was silent, as it ended.",
        words=(Out.DOWN, Out.SILENT),
    ),
    Field("silent_s", "For how long nothing had come from that backend then, where that was too long.", "number"),
    Field("weight", "Sequences that the engine ran for it: prompts times `n`.", "integer", always=True),
    Field("stream", "Whether it asked for a stream.", "boolean", always=True),
    Field("body_bytes", "Size of its body.", "integer", always=True),
    Field("constrained", "true where its output was bound by a grammar, a schema or a required tool.", "boolean"),
    Field("session", "true where it named what one engine keeps.", "boolean"),
    Field("max_tokens", "The most that a sequence of it might generate, where it set a limit.", "integer"),
    Field("attempts", "How often it was sent to a backend; 0: never.", "integer", always=True),
    Field("role", "Where it went at last; absent where it never got a place.", words=ROLES),
    Field("reason", "Why there; docs/metrics.md has what each means.", words=tuple(Reason)),
    Field("policy", "The policy in force.", words=tuple(Policy)),
    Field("regime", "The role that was favoured.", words=ROLES),
    Field("speculative_in_flight", "Sequences " + COUNTS.format("speculative"), "integer"),
    Field("baseline_in_flight", "Sequences " + COUNTS.format("baseline"), "integer"),
    Field("smoothed", "The smoothed total in flight.", "number"),
    Field("enter_at", "The threshold in force below which speculation begins again.", "integer"),
    Field("leave_at", "The threshold in force from which on it ends.", "integer"),
    Field("recent_failures", "Failures of the speculative backend that weighed as load.", "integer"),
    Field(
        "speculative_cost_s",
        "Delay that it was predicted to add there, to itself and all others; absent where demand was more than that"
        " backend was measured to give.",
        "number",
    ),
    Field("baseline_cost_s", "The same of the baseline backend.", "number"),
    Field("extrapolated", "true where one of the costs lay outside what was measured.", "boolean"),
    Field("baseline_failures", "Failures of the baseline backend that weighed as load.", "integer"),
    Field("speculative_cached", "Tokens of its prompt that the engine was believed to have cached.", "integer"),
    Field("baseline_cached", "The same of the baseline engine.", "integer"),
    Field("learned", "true where the speeds were corrected by live traffic.", "boolean"),
    Field("speculative_out", "Why the speculative backend took nothing new when it was decided.", words=tuple(Out)),
    Field("baseline_out", "The same of the baseline backend.", words=tuple(Out)),
    Field("duration_s", "Head read to last byte written.", "number", always=True),
    Field("queue_s", "Waiting for room, in that.", "number", always=True),
    Field("overhead_s", "The proxy's own time before it was on its way.", "number", always=True),
    Field("ttft_s", "Head read to first content written; streams.", "number"),
    Field("tpot_s", "Time for each token after the first; streams that tell their usage.", "number"),
    Field("prompt_tokens", "As the engine counted.", "integer"),
    Field("completion_tokens", "As the engine counted.", "integer"),
    Field("cached_tokens", "Of the prompt's, those that the engine had cached, as it told.", "integer"),
    SAMPLE,
)

ENDS = " or ".join(f"`{word}`" for word in ("accepted", "rejected"))
CHANGED = (ROLE, Field("before", "What it was."), Field("after", "What it is now."))
IN_FLIGHT = Field("in_flight", "Sequences in flight at that moment.", "integer")

EVENTS = (
    Event("request_settled", "info", "A request for an engine has ended, in whatever way.", SETTLED),
    Event(
        "question_answered",
        "info",
        "A question that occupies no engine (model list, tokenising) was answered.",
        (REQUEST_ID, *CLIENT, METHOD, ROUTE, STATUS, SAMPLE),
    ),
    Event(
        "request_refused",
        "info",
        "The proxy refused a request at its door. `request_id` is absent where its head was no whole one.",
        (REQUEST_ID, CLIENT[0], STATUS, Field("code", "The code of the error; docs/metrics.md has what each means.")),
    ),
    Event("request_failed", "error", "The proxy itself failed on a request: a defect.", (CLIENT[0], STATUS, *ERROR)),
    Event(
        "audit",
        "warning",
        "An operator's act, or somebody who was refused as one.",
        (
            Field("act", "`pin`, `unpin`, `drain`, `undrain`, `reload`, `stop` or `refused`."),
            Field("via", "`port`, `signal` or `file`."),
            Field("address", "Where it came from."),
            Field("user", "Who it says it was."),
            ROLE,
            Field("before", "What was in force: a role or null, or whether it was drained."),
            Field("after", f"What is now; of a reload {ENDS}."),
            Field("changes", "Of a reload: each key that changed, before -> after, secrets masked.", "array"),
            Field("signal", "Of a stop: `SIGTERM` or `SIGINT`."),
            Field("at_once", "Of a stop: true where it was told before, and waits for no answer now.", "boolean"),
            Field("path", "Of a refusal: the path of ours that was asked for."),
            Field("status", "Of a refusal: 401 without the token, 403 of another site.", "integer"),
        ),
    ),
    Event("regime_changed", "info", "Policy `threshold` or `consolidate` favours the other role now.", CHANGED),
    Event(
        "circuit_changed",
        "info; warning when it opens",
        f"A circuit became {', '.join(f'`{state}`' for state in CircuitState)}.",
        CHANGED,
    ),
    Event("health_changed", "info; warning when down", "A backend became `up` or `down`, or `unknown`.", CHANGED),
    Event(
        "silence_changed",
        "info; warning when silent",
        "A backend is silent (`true`): it leaves a probe unanswered and says nothing else. Or it has spoken again. The "
        "journal tells it in a sentence (`silent`, `silent_over`).",
        CHANGED,
    ),
    Event("pin_changed", "info", "Everything goes to one role now, or no more.", CHANGED),
    Event("drain_changed", "info", "A backend gets nothing new, or gets it again.", CHANGED),
    Event(
        "learning_suspended",
        "warning",
        "What was learned did harm: the curves as measured hold for a while.",
        (
            *CHANGED,
            Field("cause", "`doubt`: answers were not as foretold. `cost`: they cost more than elsewhere."),
            Field("source", "Of doubt: by whose word they were foretold."),
            Field(
                "predicted_s", "Of doubt seconds for a token, of cost seconds of all answers: as foretold.", "number"
            ),
            Field("seen_s", "The same as they were.", "number"),
            Field("answers", "Over how many answers.", "integer"),
            Field("moved", "Of cost: how many of them went elsewhere than by the measured curves.", "integer"),
            Field("suspended_for_s", "How long the measured curves hold now.", "number"),
        ),
    ),
    Event(
        "engine_seen",
        "info",
        "An engine told what it is, for the first time or something new.",
        (
            ROLE,
            Field("version", "Its version."),
            Field("model", "The model's name."),
            Field("max_running_requests", "Its own limit.", "integer"),
            Field("algorithm", "How it drafts, where it does."),
            Field("another", "true where it is not what was first seen there: calibrate again.", "boolean"),
        ),
    ),
    Event(
        "backends_disagree",
        "warning",
        "The two engines differ where they should not.",
        (Field("code", "In what."), MESSAGE),
    ),
    Event("backends_slow", "warning", "A backend did not answer at the start, which went on without it.", (MESSAGE,)),
    Event("curves_outdated", "warning", "An engine's version is not the one that was measured.", (MESSAGE,)),
    Event(
        "config_reloaded",
        "info",
        "A changed configuration is in force.",
        (Field("changes", "Each key, before -> after, and each file that was read anew, as a certificate.", "array"),),
    ),
    Event(
        "config_rejected",
        "error",
        "A changed configuration is wrong; nothing has changed.",
        (Field("problems", "All that is wrong with it, each with its mend.", "array"),),
    ),
    Event("config_caution", "warning", "The configuration is allowed, and worth a second look.", (MESSAGE,)),
    Event("disk_slow", "warning", "A file has not come from its disk, and is waited for.", (MESSAGE,)),
    Event("learned_file", "warning", "`routing.learn.state_file` could not be read or written.", (MESSAGE,)),
    Event(
        "started",
        "info",
        "It serves.",
        (
            Field("version", "Of Crossover."),
            Field("host", "Where clients find it."),
            Field("port", "On which port.", "integer"),
            Field("admin", "Where operators find it."),
        ),
    ),
    Event("traces", "warning", "Spans cannot be made or sent; requests are served all the same.", (MESSAGE,)),
    Event("start_failed", "error", "It could not start, and ends.", (MESSAGE,)),
    Event("drain_began", "info", "It was told to stop; running answers may end.", (IN_FLIGHT,)),
    Event("stopped", "info", "It has stopped; `in_flight` is 0.", (IN_FLIGHT,)),
    Event(
        "admin_failed",
        "error",
        "The proxy failed on a request of an operator: a defect.",
        (Field("path", "What was asked for."), *ERROR),
    ),
    Event("task_failed", "error", "Work in the background failed: a defect.", (Field("task", "Its name."), *ERROR)),
    Event(
        "log_lines_dropped",
        "warning",
        "Lines were not read in time and are lost. Written at every level.",
        (Field("lines", "How many.", "integer"),),
    ),
)


def logs_page() -> str:
    """The page as Markdown."""
    return "\n".join((HEAD, *overview(), *chapters())) + "\n"


def overview() -> Iterator[str]:
    """A row for each event."""
    yield "| event | level | when |"
    yield "|---|---|---|"
    for event in EVENTS:
        yield f"| [`{event.name}`](#{event.name}) | {event.level} | {event.text} |"


def chapters() -> Iterator[str]:
    """The fields of each event."""
    for event in EVENTS:
        yield f"\n### {event.name}\n"
        if event is EVENTS[0]:
            yield "As [request_settled.schema.json](request_settled.schema.json) has it, for programs.\n"
        yield "| field | type | meaning |"
        yield "|---|---|---|"
        for field in event.fields:
            yield f"| `{field.name}` | {field.kind} | {field.text} |"


def line_schema() -> dict[str, Any]:
    """The JSON Schema of a request's line."""
    every = (
        Field("event", "Which event it is.", words=("request_settled",), always=True),
        Field("level", "How grave it is.", words=("info",), always=True),
        Field("timestamp", "When it ended: UTC, ISO 8601.", always=True),
    )
    fields = (*EVENTS[0].fields, *every)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The line of a request (request_settled)",
        "type": "object",
        "properties": {field.name: field.schema() for field in fields},
        "required": [field.name for field in fields if field.always],
        "additionalProperties": False,
    }
