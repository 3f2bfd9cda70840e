"""One frame of `crossover top` as lines of styled text that fit a terminal. Nothing is asked or written here."""

from textwrap import wrap
from typing import Any

from proxy.model import ROLES, Role
from proxy.terminal.bars import BLOCKS, bar, sparkline
from proxy.terminal.cells import clock, duration, figure, is_number
from proxy.terminal.columns import columns, labelled
from proxy.terminal.saying import harmless, plain
from proxy.terminal.status import health
from proxy.terminal.view import WINDOW_S, View

# Pieces of one line, each with a style of rich ("" for none).
Line = list[tuple[str, str]]

_ROLE_STYLES = {Role.SPECULATIVE: "cyan", Role.BASELINE: "magenta"}
_HEAD = ("", "in flight", "limit", "health", "circuit", "req/s", "tok/s", "TTFT", "TPOT")
LABEL = 13
# What stands in the rows below, of speculative and baseline.
LEGEND = "  why, in flight (speculative+baseline), cost (speculative | baseline)"
# The sentence may take one of so many lines of a frame; the rest of it is in `crossover status`.
SENTENCE_SHARE = 8
# What stands where a text had to end before its end.
MORE = "..."
# What is wrong may take so many more: two troubles whole in 80 columns, and decisions still have room in 24 lines.
TROUBLE_LINES = 4
MORE_TROUBLES = "! and more: `crossover status` tells all"


def frame(view: View, width: int, height: int, *, trouble: str = "", blocks: str = BLOCKS) -> list[Line]:
    """At most `height` lines of at most `width` characters. `trouble` says why the view is an old one."""
    said = _sentence(view, trouble, width, max(1, height // SENTENCE_SHARE))
    lines = [_title(view, width), *said, *_troubles(view, width), [], *_backends(view), []]
    if view.samples:
        lines += [*_curves(view, width, blocks), _split(view, width), _counts(view), []]
    room = height - len(lines)
    events = _events(view, room // 3, width)
    lines += [*_decisions(view, room - len(events)), *events]
    return [cut(line, width) for line in lines[:height]]


def cut(line: Line, width: int) -> Line:
    """A line that is no longer than the terminal is wide, shows where it was cut, and cannot steer it."""
    whole = sum(len(text) for text, _ in line) <= width
    room = width if whole else max(0, width - len(MORE))
    kept: Line = []
    for text, style in line:
        kept.append((harmless(text[:room], BLOCKS), style))
        room -= len(text)
        if room <= 0:
            break
    return kept if whole else [*kept, (MORE[:width], "")]


def _title(view: View, width: int) -> Line:
    told = view.status
    ready = bool(told["ready"])
    at_s = next(iter(view.column("at_s")[-1:]), None)
    left = f"Crossover {plain(told.get('version'), 12)} at {plain(view.url, 40)}: "
    state = f"{plain(told['phase'], 12)}, {'ready' if ready else 'NOT READY'}"
    return [(left, "bold"), (state, "green" if ready else "bold red"), (f"  {clock(at_s):8}", "")]


def _sentence(view: View, trouble: str, width: int, most: int) -> list[Line]:
    text, style = (trouble, "bold red") if trouble else (view.status.get("sentence"), "")
    lines = wrap(plain(text, 1000), width, max_lines=most, placeholder=f" {MORE}" if width > len(MORE) else "")
    return [[(line, style)] for line in lines]


def _troubles(view: View, width: int) -> list[Line]:
    """What is wrong, the worst first, as the port tells it."""
    lines: list[Line] = []
    for each in view.status.get("troubles") or ():
        style = "bold red" if each.get("severe", True) else "yellow"
        lines += [[(line, style)] for line in labelled("!", plain(each["message"], 1000), width, 2)]
        if len(lines) > TROUBLE_LINES:
            break
    return lines if len(lines) <= TROUBLE_LINES else [*lines[: TROUBLE_LINES - 1], [(MORE_TROUBLES, "bold red")]]


def _backends(view: View) -> list[Line]:
    told = {each["role"]: each for each in view.status["backends"]}
    head, *rows = columns([_HEAD, *(_backend(view, role, told.get(role.value, {})) for role in ROLES)])
    styles = [_alarm(told.get(role.value, {})) or _ROLE_STYLES[role] for role in ROLES]
    return [[(head, "bold")], *([(row, style)] for row, style in zip(rows, styles, strict=True))]


def _backend(view: View, role: Role, backend: dict[str, Any]) -> tuple[str, ...]:
    return (
        role.value,
        figure(backend.get("in_flight")),
        figure(backend.get("max_in_flight")),
        health(backend),
        plain(backend.get("circuit"), 9),
        figure(view.per_s(role), "{:.1f}"),
        figure(view.mean(role, "tok_s"), "{:,.0f}"),
        duration(view.mean(role, "ttft_s")),
        duration(view.mean(role, "tpot_s")),
    )


def _alarm(backend: dict[str, Any]) -> str:
    """The style of a backend that gets nothing new, or gives nothing."""
    return "bold red" if backend.get("silent") or not backend.get("eligible", True) else ""


def _curves(view: View, width: int, blocks: str) -> list[Line]:
    """Both on one scale, so that they can be compared."""
    lines: list[Line] = []
    both = {role: view.column(f"{role.value}_in_flight") for role in ROLES}
    most = max([each for values in both.values() for each in values if is_number(each)], default=0)
    room = max(1, min(WINDOW_S, width - LABEL - 8))
    for role, values in both.items():
        drawn = sparkline(values, most, room, blocks)
        lines.append([(role.value.ljust(LABEL), ""), (drawn.rjust(room), _ROLE_STYLES[role])])
    lines[0].append((f"  {most:,.0f}", ""))
    lines[1].append(("  0", ""))
    return lines


def _split(view: View, width: int) -> Line:
    first, second = (view.total(f"{role.value}_requests") for role in ROLES)
    both = first + second
    if not both:
        return [("split".ljust(LABEL), ""), (f"no request in the last {WINDOW_S} s", "")]
    room = max(1, min(20, width - LABEL - 50))
    drawn = bar(first / both, room)
    filled = drawn.count("#")
    told = f"  {100 * first / both:.0f} % of {both:,} to speculative, in {WINDOW_S} s"
    return [
        ("split".ljust(LABEL), ""),
        (drawn[:filled], _ROLE_STYLES[Role.SPECULATIVE]),
        (drawn[filled:], _ROLE_STYLES[Role.BASELINE]),
        (told, ""),
    ]


def _counts(view: View) -> Line:
    told, failures, refused = view.status, view.total("failures"), view.total("refused")
    waiting = told.get("waiting", 0)
    policy = plain(told["policy"], 12)
    if policy == "threshold":
        policy += f" {figure(told.get('smoothed', 0.0), '{:.1f}')}"
        policy += f" ({figure(told.get('enter_at'))} to {figure(told.get('leave_at'))})"
    return [
        ("policy".ljust(LABEL), ""),
        (f"{policy}  ", ""),
        (f"waiting {figure(waiting)}  ", "yellow" if waiting else ""),
        (f"failures {failures:,}  ", "bold red" if failures else ""),
        (f"refused {refused:,}", "yellow" if refused else ""),
    ]


def _decisions(view: View, room: int) -> list[Line]:
    if room < 2:
        return []
    lines: list[Line] = [[("decisions", "bold"), (LEGEND, "dim")]]
    for each in view.decisions[: room - 1]:
        role = str(each.get("role"))
        style = next((style for one, style in _ROLE_STYLES.items() if one.value == role), "")
        left = f"{clock(each.get('at_s')):8}  {plain(each.get('request_id'))[:8]:<8}  "
        lines.append([(left, ""), (f"{plain(role, 11):<11}  ", style), (_why(each), "")])
    return lines


def _why(decision: dict[str, Any]) -> str:
    because = decision.get("because") or {}
    counts = f"{figure(because.get('speculative_in_flight'))}+{figure(because.get('baseline_in_flight'))}"
    said = f"{plain(decision.get('reason'), 13):<13}  {counts:<9}"
    first, second = because.get("speculative_cost_s"), because.get("baseline_cost_s")
    if is_number(first) and is_number(second):
        said += f"  {first:,.2f} | {second:,.2f} s"
    return said


def _events(view: View, room: int, width: int) -> list[Line]:
    if room < 2 or not view.events:
        return []
    told = [
        f"{clock(each.get('at_s')):8}  {plain(each.get('sentence'), width - 10)}" for each in view.events[: room - 1]
    ]
    return [[("journal", "bold")], *([(line, "")] for line in told)]
