"""Settings that are each in range and impossible together. What one key may hold is in settings.py.

A conflict names all keys it hangs on, so that it is told only where each of them was readable: a default standing in
for a mistyped value would otherwise raise a second, false alarm.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from proxy import open_files
from proxy.config.addresses import origin, same_host
from proxy.config.curves_cautions import contradictions
from proxy.config.settings import Settings
from proxy.model import ROLES, Policy
from proxy.routing.curves import Curves
from proxy.routing.policy import RuleKind

_LOOPBACK = ("127.0.0.1", "::1")
_WILDCARDS = ("0.0.0.0", "::")
_BY_CURVES = (Policy.MARGINAL, Policy.CONSOLIDATE)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Dotted `keys` that cannot be together; the message is told at the first of them that is in the file."""

    keys: tuple[str, ...]
    message: str


def conflicts(settings: Settings) -> tuple[Conflict, ...]:
    """Every impossible combination, in the order of the sections."""
    return (
        *_ports(settings),
        *_origins(settings),
        *_token(settings),
        *_backends(settings),
        *_loops(settings),
        *_bodies(settings),
        *_routing(settings),
        *_rules(settings),
        *_timeouts(settings),
    )


def missing_speeds(settings: Settings, curves: Curves | None) -> str | None:
    """What the policy lacks in the file of curves, which is read after the keys; None where it has all it needs."""
    policy = settings.routing.policy
    if curves is None or policy not in _BY_CURVES or curves.whole:
        return None
    role, tokens = curves.gaps[0]
    return (
        f"has no speeds of the {role} backend at {tokens} tokens of context, and policy {policy} places requests by "
        "those of both; mend: calibrate both backends, or set policy: auto"
    )


def cautions(settings: Settings) -> tuple[str, ...]:
    """What is allowed and rarely meant, to be said at each start."""
    files = open_files.few(settings.listen.max_connections, open_files.limit())
    few = () if files is None else (files,)
    return (*_open_admin(settings), *_idle_goals(settings), *few, *contradictions(settings))


def _open_admin(settings: Settings) -> Iterator[str]:
    admin = settings.admin
    if admin.token is None and not _is_loopback(admin.host):
        yield (
            f"admin.host: {admin.host} may be reached from other machines, and whoever reaches it may pin, drain and "
            "reload; mend: set admin.token or admin.token_file, or listen on 127.0.0.1"
        )


def _idle_goals(settings: Settings) -> Iterator[str]:
    rules = settings.rules()
    if rules.goals is not None and rules.effective_policy is not Policy.MARGINAL:
        yield (
            f"routing.slo: moves no request, since policy {rules.effective_policy} does not look at it; mend: give "
            "curves_file the speeds of both backends and set policy: auto with placement: separate, or remove it"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(same_host(host)).is_loopback
    except ValueError:
        return False  # a name may stand for any address


def _ports(settings: Settings) -> Iterator[Conflict]:
    listen, admin = settings.listen, settings.admin
    if listen.port and listen.port == admin.port and _overlap(listen.host, admin.host):
        yield Conflict(
            ("admin.port", "admin.host", "listen.port", "listen.host"),
            f"must not be the port of the clients (listen.port, {listen.port}); mend: choose another port",
        )


def _origins(settings: Settings) -> Iterator[Conflict]:
    origins = settings.listen.cors_origins
    if "*" in origins and len(origins) > 1:
        yield Conflict(
            ("listen.cors_origins",), 'has "*", which lets every page, and others; mend: keep one or the other'
        )


def _token(settings: Settings) -> Iterator[Conflict]:
    if settings.admin.token is not None and settings.admin.token_file is not None:
        yield Conflict(("admin.token_file", "admin.token"), "must not stand beside token; mend: keep one of the two")


def _backends(settings: Settings) -> Iterator[Conflict]:
    speculative, baseline = settings.backends.speculative, settings.backends.baseline
    if origin(speculative.url) == origin(baseline.url):
        yield Conflict(
            ("backends.baseline.url", "backends.speculative.url"),
            "must not be the url of backends.speculative; mend: give the instance without speculation its own url",
        )
    for role in ROLES:
        backend = settings.backends.of(role)
        if backend.api_key is not None and backend.api_key_file is not None:
            yield Conflict(
                (f"backends.{role}.api_key_file", f"backends.{role}.api_key"),
                "must not stand beside api_key; mend: keep one of the two",
            )


def _loops(settings: Settings) -> Iterator[Conflict]:
    """A backend that is the proxy itself would send each request round until nothing is left."""
    for role in ROLES:
        host, port = origin(settings.backends.of(role).url)
        for section, door in (("listen", settings.listen), ("admin", settings.admin)):
            own = same_host(door.host)
            if door.port == port and (host == own or (host in _LOOPBACK and own in _WILDCARDS)):
                yield Conflict(
                    (f"backends.{role}.url", f"{section}.port", f"{section}.host"),
                    f"must not be the proxy's own {section} port ({port}); mend: write the engine's port, "
                    f"or move {section}.port",
                )


def _bodies(settings: Settings) -> Iterator[Conflict]:
    listen = settings.listen
    if listen.max_held_body_bytes < listen.max_body_bytes:
        yield Conflict(
            ("listen.max_held_body_bytes", "listen.max_body_bytes"),
            f"must not be below listen.max_body_bytes ({listen.max_body_bytes}), or no such body is ever taken; "
            "mend: raise max_held_body_bytes or lower max_body_bytes",
        )


def _routing(settings: Settings) -> Iterator[Conflict]:
    routing = settings.routing
    if routing.enters_at() >= routing.leave_at:
        yield Conflict(
            ("routing.leave_at", "routing.enter_at"),
            f"must be above routing.enter_at ({routing.enter_at}), not {routing.leave_at}; "
            f"mend: raise leave_at, or set enter_at to {routing.leave_at - 1} or less",
        )
    if routing.policy in _BY_CURVES and routing.curves_file is None:
        yield Conflict(
            ("routing.policy", "routing.curves_file"),
            f"must not be {routing.policy} without routing.curves_file, whose speeds it places requests by; "
            "mend: run crossover calibrate and name the curves.yaml that it writes, or set policy: auto",
        )


def _rules(settings: Settings) -> Iterator[Conflict]:
    least: dict[RuleKind, int] = {}
    for index, rule in enumerate(settings.routing.rules):
        key = f"routing.rules.{index}"
        size = rule.min_prompt_bytes or 0
        if rule.when in least and size >= least[rule.when]:
            yield Conflict((key,), f"never matches: an earlier rule takes every {rule.when} request; mend: remove it")
        if size > settings.listen.max_body_bytes:
            yield Conflict(
                (f"{key}.min_prompt_bytes", "listen.max_body_bytes"),
                f"never matches: larger bodies than listen.max_body_bytes ({settings.listen.max_body_bytes}) are "
                "refused; mend: lower it",
            )
        least[rule.when] = min(size, least.get(rule.when, size))


def _timeouts(settings: Settings) -> Iterator[Conflict]:
    timeouts = settings.timeouts
    if timeouts.first_byte_s < timeouts.connect_s:
        yield Conflict(
            ("timeouts.first_byte_s", "timeouts.connect_s"),
            f"must not be below timeouts.connect_s ({timeouts.connect_s:g}), since it begins with the connection; "
            "mend: raise first_byte_s",
        )


def _overlap(one: str, other: str) -> bool:
    """Whether two sockets on these hosts and one port would be in each other's way."""
    one, other = same_host(one), same_host(other)
    return one == other or any(
        wide == "::" or (wide == "0.0.0.0" and ":" not in narrow) for wide, narrow in ((one, other), (other, one))
    )
