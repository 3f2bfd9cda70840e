"""Settings shown and compared: what is in force, what a reload changes, what only a restart can change. Secrets masked.

Reading settings is not here (loading.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, SecretStr

from proxy.config.problems import KeyPath, dotted
from proxy.config.settings import Settings
from proxy.config.traces_keys import Traces
from proxy.model import ROLES

MASK = "***"

# Sockets are bound once, the idle time of client connections is given to the server that holds them, and what exports
# spans is made at the start.
RESTART_KEYS = frozenset(
    {
        *("listen.host", "listen.port", "listen.keepalive_s", "admin.host", "admin.port"),
        *(f"traces.{name}" for name in Traces.model_fields),
    }
)


# What names a file that is read with the configuration.
_FILES = frozenset(
    {
        *("api_key_file", "api_keys_file", "token_file", "curves_file", "headers_file"),
        *("cert_file", "key_file", "client_ca_file"),
    }
)


@dataclass(frozen=True, slots=True)
class Change:
    """One key with two values, plain (text, numbers, lists) and secrets masked: a new secret shows as *** and ***."""

    key: str
    old: Any
    new: Any


def effective(settings: Settings) -> str:
    """All settings in force as YAML, in the order of the file. A key read from a file is shown by its file alone."""
    shown = _shown(settings)
    if shown["admin"]["token_file"] is not None:
        shown["admin"]["token"] = None
    for backend in shown["backends"].values():
        if backend["api_key_file"] is not None:
            backend["api_key"] = None
    text: str = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
    return text


def differences(old: Settings, new: Settings) -> tuple[Change, ...]:
    """Every key whose value differs, in the order of the file, and last the clients and the speeds that are in files of
    their own."""
    former, latter = dict(_leaves(old)), dict(_leaves(new))
    # A section that may be left out has keys on one side only.
    changed = [
        Change(dotted(path), _shown(former.get(path)), _shown(latter.get(path)))
        for path in dict.fromkeys((*latter, *former))
        if former.get(path) != latter.get(path)
    ]
    if old.sources.clients != new.sources.clients:
        changed.append(Change("clients", _names(old), _names(new)))
    if old.sources.curves != new.sources.curves:
        changed.append(Change("curves", _measured_at(old), _measured_at(new)))
    return tuple(changed)


def read_anew(old: Settings, new: Settings) -> list[str]:
    """A line for each file that the configuration names and that is another than before, as a renewed certificate is:
    no key of the configuration differs for it."""
    before, now = old.sources.marks, new.sources.marks
    folder = Path() if new.sources.file is None else new.sources.file.parent
    told = []
    for path, value in _leaves(new):
        if path[-1] in _FILES and value is not None:
            # Certificates are named from the working directory by now, the others as in the file.
            files = {folder / str(value), Path(str(value))} & before.keys()
            told += [f"{dotted(path)}: {file} read anew" for file in files if before[file] != now.get(file)]
    return told


def needs_restart(old: Settings, new: Settings) -> list[str]:
    """The keys that differ and that a running proxy cannot take over."""
    switched = [
        f"{name}.tls"
        for name, one, other in (("listen", old.listen.tls, new.listen.tls), ("admin", old.admin.tls, new.admin.tls))
        if (one is None) != (other is None)
    ]
    return [change.key for change in differences(old, new) if change.key in RESTART_KEYS] + switched


def beside_defaults(settings: Settings) -> list[dict[str, Any]]:
    """Every key that is not at its default, as plain values; the urls of the backends have none."""
    urls = {role.value: {"url": settings.backends.of(role).url} for role in ROLES}
    defaults = Settings.model_validate({"backends": urls})
    return [{"key": each.key, "value": each.new, "default": each.old} for each in differences(defaults, settings)]


def pending(settings: Settings, written: Settings) -> list[dict[str, Any]]:
    """Where the file as it is `written` now differs from what is in force, and whether only a restart takes it over."""
    stuck = needs_restart(settings, written)
    return [
        {"key": each.key, "in_force": each.old, "in_file": each.new, "needs_restart": each.key in stuck}
        for each in differences(settings, written)
    ]


def _names(settings: Settings) -> list[str] | None:
    """Who may come in; a client whose key alone has changed has the same name before and after."""
    clients = settings.sources.clients
    return None if clients is None else [client.name for client in clients]


def _measured_at(settings: Settings) -> str | None:
    curves = settings.sources.curves
    return None if curves is None else curves.measured_at


def _leaves(section: BaseModel, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _shown(value: object) -> Any:
    if isinstance(value, BaseModel):
        shown = {name: _shown(getattr(value, name)) for name in type(value).model_fields}
        return {name: one for name, one in shown.items() if name != "min_prompt_bytes" or one is not None}
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, Enum):
        return value.value
    return [_shown(one) for one in value] if isinstance(value, tuple) else value
