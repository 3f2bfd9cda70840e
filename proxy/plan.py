"""Settings to the frozen rules that each room works by: the one place that knows both sides."""

from pathlib import Path

from proxy import open_files
from proxy.config import Settings
from proxy.dispatch import BackendPlan, Plan
from proxy.model import ROLES, Role
from proxy.protocol.allowlist import EngineKind
from proxy.wire.admission import QueueRules
from proxy.wire.arrivals import MAX_TOLD, ConnectionRules
from proxy.wire.body import BodyRules
from proxy.wire.pair import LineRules
from proxy.wire.passage import Patience


def plan(settings: Settings) -> Plan:
    """What the desk works by."""
    speculative, baseline = (_backend(settings, role) for role in ROLES)
    return Plan(
        backends=(speculative, baseline),
        rules=settings.rules(),
        breaker=settings.breaker_rules(),
        health=settings.health_rules(),
        retries=settings.retry_rules(),
        linger_s=settings.timeouts.linger_s,
        learns=settings.routing.learn.enabled,
    )


def line_rules(settings: Settings) -> dict[Role, LineRules]:
    """How each backend is reached and watched."""
    return {role: _line(settings, role) for role in ROLES}


def kinds(settings: Settings) -> dict[Role, EngineKind]:
    """Which server each backend is."""
    return {role: settings.backends.of(role).engine for role in ROLES}


def learned_path(settings: Settings) -> Path | None:
    """Where what is learned is kept over a restart; None where it is not."""
    state_file = settings.routing.learn.state_file
    return None if state_file is None else Path(state_file)


def patience(settings: Settings) -> Patience:
    """How long one request's backend may stand still."""
    return Patience(first_byte_s=settings.timeouts.first_byte_s, stall_s=settings.timeouts.stall_s)


def body_rules(settings: Settings) -> BodyRules:
    """Limits of request bodies."""
    listen = settings.listen
    return BodyRules(
        max_bytes=listen.max_body_bytes,
        pause_s=listen.body_timeout_s,
        min_bytes_per_s=listen.min_body_bytes_per_s,
        max_held_bytes=listen.max_held_body_bytes,
    )


def connection_rules(settings: Settings, files: int | None = None) -> ConnectionRules:
    """Limits of connections and heads; of connections no more than so many open `files` are enough for."""
    listen = settings.listen
    connections = open_files.connections(listen.max_connections, files)
    return ConnectionRules(
        max_connections=connections,
        head_timeout_s=listen.head_timeout_s,
        max_head_bytes=listen.max_head_bytes,
        max_headers=listen.max_headers,
        unread_s=listen.unread_timeout_s,
        # Those who are told of the limit have a quarter of what is kept from clients, not all of it.
        max_told=int(min(MAX_TOLD, open_files.beside(connections, files) // 4)),
    )


def queue_rules(settings: Settings) -> QueueRules:
    """Limits of waiting."""
    return QueueRules(settings.queue.max_waiting, settings.queue.max_wait_s)


def _backend(settings: Settings, role: Role) -> BackendPlan:
    backend = settings.backends.of(role)
    limit = None if backend.max_in_flight == "auto" else backend.max_in_flight
    return BackendPlan(role, backend.url, limit)


def _line(settings: Settings, role: Role) -> LineRules:
    backend = settings.backends.of(role)
    return LineRules(
        url=backend.url,
        engine=backend.engine,
        api_key=backend.api_key.get_secret_value() if backend.api_key is not None else None,
        connect_s=settings.timeouts.connect_s,
        interval_s=settings.health.interval_s,
        timeout_s=settings.health.timeout_s,
    )


def engines(settings: Settings) -> tuple[EngineKind, ...]:
    """The kinds of engine behind the proxy, each once."""
    return tuple(sorted({settings.backends.of(role).engine for role in ROLES}))
