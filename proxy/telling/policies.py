"""Where a policy sends new requests and why, for each policy; no counts of the moment, which stand beside the sentence.

That a backend is out, a pin, and that there is no room come before it (present.py).
"""

from collections.abc import Mapping

from proxy.model import Policy, Reason, Role
from proxy.telling.favour import kept
from proxy.telling.figures import about, favoured, seconds, smooth
from proxy.telling.state import Lately, Present

# Shares between these are told as a split, others as one direction with exceptions not worth a word.
SPLIT = (0.1, 0.9)
# Of fewer a share is told by their number.
FEW = 20
# Of a single request it is not told what most did.
SEVERAL = 2
# Costs nearer than this differ by less than what is known of the speeds.
_ALIKE = 1.05
# What sends requests beside the policy, and does so as long as they ask for it: the policy has the others.
ASKED: dict[Reason, str] = {
    Reason.HEADER: "named their backend (x-crossover-backend)",
    Reason.RULE: "were sent by a rule of routing.rules",
    Reason.STATE: "named state that one engine alone has",
    Reason.AFFINITY: "stayed where their prompt is cached",
}
# What sent them then, and is over: the policy has all that come now.
_NO_CHOICE = "since the other backend took none then"
_PAST = {
    Reason.OPERATOR_PIN: "by the pin that an operator has taken back",
    Reason.PINNED: "by the pin of the configuration as it was then",
    Reason.ONLY_ELIGIBLE: _NO_CHOICE,
    Reason.OTHER_FULL: _NO_CHOICE,
    Reason.SILENT: "since the other backend gave no sign of life then",
    Reason.RAMPING: _NO_CHOICE,
    Reason.FAILOVER: "since the other backend had failed them",
    Reason.ALL_DOWN: "since neither backend took any then",
}
FORCED = ASKED.keys() | _PAST.keys()
_LEAST = "by the measured speeds one more delays all requests least there"


def asked(lately: Lately | None) -> str | None:
    """What most of the latest requests did where something else than the policy sends them, as a part of a sentence."""
    why = _forced_by(lately, ASKED)
    if lately is None or why is None:
        return None
    way = f"went to {_way(lately)}" if _way(lately) else f"were split, {_parts(lately)}"
    return f"Of the latest {lately.requests:,} requests {_some(lately)} {why} and {way}"


def past(lately: Lately | None) -> str | None:
    """The same where what sent them is over."""
    why = _forced_by(lately, _PAST)
    if lately is None or why is None:
        return None
    return (
        f"of the latest {lately.requests:,}, {_some(lately)} went to {_way(lately) or f'both ({_parts(lately)})'} {why}"
    )


def _forced_by(lately: Lately | None, reasons: Mapping[Reason, str]) -> str | None:
    if lately is None or lately.forced is None or lately.requests < SEVERAL:
        return None
    return reasons.get(lately.forced)


def _some(lately: Lately) -> str:
    return f"{lately.forced_requests:,}" if lately.forced_requests < lately.requests else "all"


def _way(lately: Lately) -> Role | None:
    """Where those that were forced went; None: to both."""
    least, most = SPLIT
    share = lately.forced_speculative / lately.forced_requests
    if least < share < most:
        return None
    return Role.SPECULATIVE if share >= most else Role.BASELINE


def _parts(lately: Lately) -> str:
    return _split(lately.forced_speculative, lately.forced_requests)


def chosen(present: Present, who: str, lately: Lately | None) -> str:
    """Where requests of `who` go by the policy in force; `lately` is left out where no policy sent the latest ones."""
    match present.policy:
        case Policy.MARGINAL:
            return _marginal(present, who, lately)
        case Policy.CONSOLIDATE:
            return kept(present, who)
        case Policy.THRESHOLD:
            return _threshold(present, who)
        case _:
            return _overflow(present, who, lately)


def _marginal(present: Present, who: str, lately: Lately | None) -> str:
    role, least = present.next, _delays(present)
    if role is None or least is None:
        return f"{who} go where by the measured speeds each delays all requests least"
    if present.reason in (Reason.OTHER_FULL, Reason.RAMPING):
        return f"{who} go to {role}, since {role.other} cannot take them"
    if lately is None:
        return f"{who} go to {role}: {_LEAST} ({least})"
    if SPLIT[0] < lately.share < SPLIT[1]:
        rule = "each goes where by the measured speeds it delays all requests least"
        split = _split(lately.speculative, lately.requests)
        return f"{who} are split, lately {split}: {rule}, the next to {role} ({least})"
    return _one_way(present, who, lately, least)


def _one_way(present: Present, who: str, lately: Lately, least: str) -> str:
    """Of requests that lately all went one way, which need not be that of one more beside them."""
    role, went = present.next, Role.SPECULATIVE if lately.share >= SPLIT[1] else Role.BASELINE
    if went is role:
        return f"{who} go to {role}: {_LEAST} ({least})"
    told = f"{'all' if lately.speculative in (0, lately.requests) else 'nearly all'} of the latest"
    if not present.spare:
        return f"{who} would go to {role} now: {_LEAST} ({least}); {told} went to {went}"
    free = "it is idle" if present.of(went).in_flight <= 1 else "few are in flight there"
    instead = f"one more beside those would go to {role}, where by the measured speeds it delays all requests less"
    return f"{who} go to {went} while {free}, as {told} did; {instead} ({least})"


def _delays(present: Present) -> str | None:
    """What one more costs where it goes, and on the other one."""
    role, costs = present.next, present.costs
    if role is None or costs is None:
        return None
    mine, others = costs.speculative_s, costs.baseline_s
    if role is Role.BASELINE:
        mine, others = others, mine
    told = f"by {seconds(mine)} for an answer of the expected {about(present.tokens)} tokens"
    if mine <= others <= mine * _ALIKE:
        return f"{told}, hardly less than on {role.other}"
    return f"{told}, on {role.other} by {seconds(others)}"


def _split(speculative: int, requests: int) -> str:
    if requests < FEW:
        return f"{speculative} of {requests} to speculative"
    return f"about {round(10 * speculative / requests) * 10} % to speculative"


def _threshold(present: Present, who: str) -> str:
    role = present.regime
    if role is Role.SPECULATIVE:
        change = f"it is left at {present.leave_at:,} (leave_at)"
    else:
        change = f"speculative is entered again at {present.enter_at:,} (enter_at)"
    smoothed = f"with {smooth(present.smoothed)} sequences in flight (smoothed)"
    return f"{who} go to {role}, {favoured(present.regime_age_s)}, {smoothed}; {change}"


def _overflow(present: Present, who: str, lately: Lately | None) -> str:
    rule = f"while it has fewer than {present.leave_at:,} sequences in flight (leave_at), else to baseline"
    split = "" if lately is None else f"; lately {_split(lately.speculative, lately.requests)}"
    return f"{who} go to speculative {rule}{split}"
