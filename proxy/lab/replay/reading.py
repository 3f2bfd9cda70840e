"""Events of a log to traffic: who ran, for how long, with how many tokens, and an account of all that was left out.

Where an engine did not tell the tokens of an answer they are estimated from the time that it took; of a request that
was cut short the same tells how far it had come. What one line says is in events.py.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import fmean, median

from proxy.errors import ConfigError
from proxy.lab.replay.events import MAX_TOKENS, Dropped, EngineSeen, InForce, Settled, Skip, read_event
from proxy.lab.replay.files import MAX_LINE_BYTES
from proxy.lab.replay.traffic import Came, Traffic, Was, without_edges
from proxy.model import ROLES, Outcome, Reason, Role

# Fewer requests tell nothing: their mean has an interval wider than any policies differ by.
MIN_REQUESTS = 200
# Fewer answers with usage give no speed to estimate the others by.
MIN_TOLD = 50

# Who was sent elsewhere by these was not sent there by the policy, and no such event is replayed.
_BY_EVENTS = frozenset(
    {
        Reason.OPERATOR_PIN,
        Reason.ONLY_ELIGIBLE,
        Reason.SILENT,
        Reason.FAILOVER,
        Reason.RAMPING,
        Reason.ALL_DOWN,
    }
)
# These ran on an engine for a while.
_CUT = frozenset({Outcome.CLIENT_GONE_IN_STREAM, Outcome.FAILED_AFTER_COMMIT, Outcome.SHUT_DOWN})

# Beyond this share of all durations lies the end of a log at which its sample is whole.
_LATE_RANK = 0.99


@dataclass(slots=True)
class Account:
    """What was made of the lines: `skipped` by why, `left_out` requests by why, and the requests `kept`, which are all
    of them together. Of those kept some were cut, had no usage, or were sent where they went by an event. `dropped`
    lines were never written, and `sampled` ones stand for others that were not; `max_running` is how many sequences
    each engine runs at most, by its own last word."""

    lines: int = 0
    settled: int = 0
    kept: int = 0
    counted: int = 0
    cut: int = 0
    estimated: int = 0
    by_events: int = 0
    dropped: int = 0
    sampled: int = 0
    max_running: dict[Role, int] = field(default_factory=dict)
    skipped: Counter[Skip] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)


def read_log(lines: Iterable[bytes]) -> tuple[Traffic, Account]:
    """The traffic in a log's lines and the account of it. Raises `ConfigError` with the mend where there is too
    little in it."""
    account = Account()
    settled = [one for one in _events(lines, account) if _ran(one, account)]
    _refuse_little(settled, account)
    settled.sort(key=lambda one: one.at_s)
    account.kept = len(settled)
    speeds = _Speeds(settled)
    first_s = settled[0].at_s
    rows = without_edges((_came(one, first_s, speeds, account) for one in settled), _late_s(settled))
    account.counted = sum(came.counts for came in rows)
    if account.counted < MIN_REQUESTS / 2:
        raise ConfigError(_too_few(account.counted, MIN_REQUESTS // 2, "that can be compared"))
    in_force, share = _in_force(settled)
    return Traffic(rows, first_s, in_force, share, _most_sent_to(settled)), account


def _events(lines: Iterable[bytes], account: Account) -> Iterator[Settled]:
    for line in lines:
        account.lines += 1
        found = Skip.TOO_LONG if len(line) > MAX_LINE_BYTES else read_event(line)
        if isinstance(found, Settled):
            account.settled += 1
            account.sampled += found.sampled
            yield found
        else:
            account.skipped[_noted(found, account)] += 1


def _noted(found: Dropped | EngineSeen | Skip, account: Account) -> Skip:
    """Take from a line what it tells besides; why it tells of no request."""
    if isinstance(found, Skip):
        return found
    if isinstance(found, Dropped):
        account.dropped += found.lines
    else:
        account.max_running[found.role] = found.max_running
    return Skip.OTHER_EVENT


def _ran(one: Settled, account: Account) -> bool:
    """Whether a request was on an engine; the account of those that were not."""
    why = None
    if one.role is None or one.told is None:
        why = "never given to a backend"
    elif one.outcome in (Outcome.FAILED_BEFORE_COMMIT, Outcome.CLIENT_GONE_WAITING):
        why = "ended before an answer began"
    elif one.status >= 400:
        why = "answered with an error"
    if why is not None:
        account.left_out[why] += 1
    return why is None


def _refuse_little(settled: list[Settled], account: Account) -> None:
    if not account.settled:
        raise ConfigError(
            f"none of {account.lines} lines is an event of a settled request; mend: give the standard output of "
            "`crossover serve` with log.format: json and log.level: info, or a trace (.csv as Azure's, .jsonl as "
            "Mooncake's)"
        )
    if account.sampled:
        raise ConfigError(
            "the log has a sample of the requests (log.sample), and who else ran beside them is not known; mend: set "
            "log.sample: 1, and replay what is logged from then on"
        )
    if len(settled) < MIN_REQUESTS:
        raise ConfigError(_too_few(len(settled), MIN_REQUESTS, "that ran"))
    told = sum(_is_told(one) for one in settled)
    if told < MIN_TOLD:
        raise ConfigError(
            f"only {told} of {len(settled)} answers tell how many tokens they had, and at least {MIN_TOLD} must; mend: "
            "let clients that stream send stream_options: {include_usage: true}; answers that do not stream have it"
        )


def _too_few(found: int, needed: int, which: str) -> str:
    had = f"the log has {found} request{'' if found == 1 else 's'} {which}"
    return f"{had}, and at least {needed} are needed; mend: give a longer log, or several files"


def _is_told(one: Settled) -> bool:
    return one.outcome is Outcome.FINISHED and one.usage.completion_tokens > 0


class _Speeds:
    """By what tokens are estimated where nobody told them."""

    def __init__(self, settled: list[Settled]) -> None:
        told = [one for one in settled if _is_told(one)]
        self._overall = self._rate(told)
        self._of = {role: self._rate([one for one in told if one.role is role]) or self._overall for role in ROLES}
        bodies = [one for one in told if one.usage.prompt_tokens]
        self._prompt_share = (
            sum(one.usage.prompt_tokens for one in bodies) / max(1, sum(one.traits.prompt_bytes for one in bodies))
            if bodies
            else 0.25
        )

    def tokens(self, one: Settled) -> int:
        """The tokens of each sequence by the time that it ran."""
        rate = self._of[one.role] if one.role is not None else self._overall
        return min(MAX_TOKENS, max(1, round(rate * (one.duration_s - one.queue_s))))

    def prompt_tokens(self, one: Settled) -> int:
        """The tokens of the prompt by the bytes of the body."""
        return min(MAX_TOKENS, round(self._prompt_share * one.traits.prompt_bytes))

    @staticmethod
    def _rate(told: list[Settled]) -> float:
        """Tokens of a sequence by second that it ran."""
        ran_s = sum(one.duration_s - one.queue_s for one in told)
        return sum(one.usage.completion_tokens / one.traits.weight for one in told) / ran_s if ran_s > 0 else 0.0


def _came(one: Settled, first_s: float, speeds: _Speeds, account: Account) -> Came:
    told, cut = _is_told(one), one.outcome in _CUT
    account.cut += cut
    # What has a prompt and no answer, such as an embedding, is over with its first step.
    guessed = not told and (cut or not one.usage.prompt_tokens)
    account.estimated += guessed and not cut
    account.by_events += one.reason in _BY_EVENTS
    each = one.usage.completion_tokens / one.traits.weight if told else 0.0
    prompt = one.usage.prompt_tokens or speeds.prompt_tokens(one)
    assert one.role is not None
    return Came(
        at_s=one.at_s - first_s,
        prompt_tokens=prompt,
        uncached_tokens=max(min(1, prompt), prompt - one.usage.cached_tokens),
        tokens=speeds.tokens(one) if guessed else max(1, round(each)),
        heard_tokens=each,
        route=one.route,
        traits=one.traits,
        counts=not cut,
        was=Was(one.role, one.duration_s, one.ttft_s if one.traits.stream else None, one.tpot_s),
    )


def _late_s(settled: list[Settled]) -> float:
    ordered = sorted(one.duration_s for one in settled)
    return ordered[round(_LATE_RANK * (len(ordered) - 1))]


def _in_force(settled: list[Settled]) -> tuple[InForce | None, float]:
    """What decided most requests, and the share of them."""
    ((found, count),) = Counter(one.told for one in settled).most_common(1)
    return found, count / len(settled)


def _most_sent_to(settled: list[Settled]) -> Role | None:
    return Counter(one.role for one in settled).most_common(1)[0][0]


# Prompts of one length tell nothing of the speed at which they are taken in, and few of them nothing certain.
_MIN_PREFILLS, _MIN_APART_TOKENS = 90, 200
# What comes out below or above these is chance: no engine is so slow, and none so fast.
_PREFILLS_TOK_S = (100.0, 1e6)


def prefill_tok_s(traffic: Traffic, role: Role) -> float | None:
    """Prompt tokens a second that a backend took in: by how much later the first token came to the longest third of the
    prompts than to the shortest. None where too few tell, or their lengths hardly differ.

    What a first token waits for besides (a step, the prompts of others) is the same for both, so it is not in it.
    """
    told = sorted(
        (came.uncached_tokens, came.was.ttft_s)
        for came in traffic.requests
        if came.was is not None and came.was.role is role and came.was.ttft_s is not None
    )
    third = len(told) // 3
    short, long = told[:third], told[-third:]
    if len(told) < _MIN_PREFILLS:
        return None
    apart = median(tokens for tokens, _ in long) - median(tokens for tokens, _ in short)
    later_s = median(ttft_s for _, ttft_s in long) - median(ttft_s for _, ttft_s in short)
    if apart < _MIN_APART_TOKENS or later_s <= 0:
        return None
    speed = apart / later_s
    return speed if _PREFILLS_TOK_S[0] <= speed <= _PREFILLS_TOK_S[1] else None


def measured_means(traffic: Traffic) -> dict[str, float | None]:
    """What the log says of the requests that count: their durations, the means of TTFT and TPOT where there are any,
    the share sent to speculative."""
    was = [came.was for came in traffic.requests if came.counts and came.was is not None]
    lasted = sorted(each.duration_s for each in was)
    ttft_s = [each.ttft_s for each in was if each.ttft_s is not None]
    tpot_s = [each.tpot_s for each in was if each.tpot_s is not None]
    return {
        "mean_e2e_s": fmean(lasted),
        **{f"p{rank}_e2e_s": lasted[round(rank / 100 * (len(lasted) - 1))] for rank in (50, 95, 99)},
        "mean_ttft_s": fmean(ttft_s) if ttft_s else None,
        "mean_tpot_s": fmean(tpot_s) if tpot_s else None,
        "share_speculative": sum(each.role is Role.SPECULATIVE for each in was) / len(was),
    }
