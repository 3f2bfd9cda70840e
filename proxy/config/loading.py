"""From a file, or a mapping in code, to frozen settings: whole, or not at all with every problem named at once.

Watching the file and swapping settings in is not here (wire/), nor is any rule about a single key (settings.py).
"""

import errno
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError

from proxy.config.addresses import checked_key
from proxy.config.certificates import file_problems
from proxy.config.conflicts import conflicts
from proxy.config.mends import schema_problems
from proxy.config.problems import InvalidConfig, KeyPath, Problem
from proxy.config.settings import EXAMPLE_URLS, Backend, Settings, Tls
from proxy.config.yaml_nodes import Document, decode
from proxy.model import ROLES, Role

# A full configuration has about 10 KiB. Larger is another file, and would hold the event loop for seconds.
MAX_FILE_BYTES = 1 << 20

# The longest token known is a JWT of a few KiB; larger is not a key.
MAX_KEY_FILE_BYTES = 1 << 16

_TEXT_KEYS = frozenset({"api_key", "api_key_file", "cert_file", "key_file", "client_ca_file"})


def load(path: Path, environ: Mapping[str, str]) -> Settings:
    """Read the configuration file, with `${VAR}` filled from `environ` and key files read. Blocks on the disk.

    Raises InvalidConfig with all problems.
    """
    return _settled(_read(path, environ), path.parent)


def from_mapping(values: Mapping[str, Any], folder: Path = Path()) -> Settings:
    """Settings built in code from nested plain values, under the same rules as a file; key files count from `folder`.

    Raises InvalidConfig with all problems, without line numbers.
    """
    return _settled(Document("settings", dict(values)), folder)


def override(settings: Settings, changes: Mapping[str, object]) -> Settings:
    """The settings with some keys changed, as the command line does: `{"listen.port": 8080}`.

    Raises InvalidConfig when a key does not exist, a value is refused, or a change makes an impossible combination.
    """
    values = _nested(settings)
    for key, value in changes.items():
        *sections, name = key.split(".")
        section = values
        for one in sections:
            section = section.setdefault(one, {})
        section[name] = value
    changed, problems = _validated(Document("command line", values), of_interest=frozenset(changes))
    if problems:
        raise InvalidConfig(problems)
    return changed


def _settled(document: Document, folder: Path) -> Settings:
    settings, problems = _validated(document)
    backends: dict[str, Backend] = {}
    for role in ROLES:
        backend = settings.backends.of(role)
        if backend.api_key_file is not None:
            try:
                key = SecretStr(_key_in(folder / backend.api_key_file))
            except ValueError as error:
                problems.append(document.problem(("backends", role.value, "api_key_file"), str(error)))
            else:
                backends[role.value] = backend.model_copy(update={"api_key": key})
    settings = settings.model_copy(
        update={
            "backends": settings.backends.model_copy(update=backends),
            "listen": settings.listen.model_copy(update={"tls": _placed(settings.listen.tls, folder)}),
            "admin": settings.admin.model_copy(update={"tls": _placed(settings.admin.tls, folder)}),
        }
    )
    problems += [document.problem(path, message) for path, message in file_problems(settings)]
    if problems:
        raise InvalidConfig(problems)
    return settings


def _placed(tls: Tls | None, folder: Path) -> Tls | None:
    """The same files, by paths that hold from the working directory."""
    if tls is None:
        return None
    names = {name: getattr(tls, name) for name in Tls.model_fields}
    return tls.model_copy(update={name: str(folder / file) for name, file in names.items() if file is not None})


def _validated(document: Document, of_interest: frozenset[str] | None = None) -> tuple[Settings, list[Problem]]:
    """Settings and problems. Where a value is refused its default stands in, so that all else can still be checked."""
    problems = list(document.problems)
    try:
        settings = Settings.model_validate(_with_backends(document.values))
    except ValidationError as error:
        refused = dict(schema_problems(error, document))
        problems += refused.values()
        document = replace(document, broken=document.broken | refused.keys())
        settings = Settings.model_validate(_with_backends(_pruned(document.values, document.broken), EXAMPLE_URLS))
    problems += _conflict_problems(settings, document, of_interest)
    return settings, problems


def _conflict_problems(settings: Settings, document: Document, of_interest: frozenset[str] | None) -> Iterator[Problem]:
    for conflict in conflicts(settings):
        paths = [_path_of(key) for key in conflict.keys]
        wanted = of_interest is None or not of_interest.isdisjoint(conflict.keys)
        if wanted and not any(document.is_broken(path) for path in paths):
            told_at = next((path for path in paths if path in document.places), paths[0])
            yield document.problem(told_at, conflict.message)


def _with_backends(values: object, urls: Mapping[Role, str] | None = None) -> object:
    """The values with both backends there, so that what is missing is named by its key; `urls` stand in for theirs."""
    values = {} if values is None else values
    if not isinstance(values, dict):
        return values
    backends = {} if values.get("backends") is None else values["backends"]
    if isinstance(backends, dict):
        backends = {**dict.fromkeys(ROLES), **backends}
        if urls:
            backends = {role: {"url": urls[Role(role)], **(backend or {})} for role, backend in backends.items()}
    return {**values, "backends": backends}


def _pruned(value: Any, broken: frozenset[KeyPath], path: KeyPath = ()) -> Any:
    """The values without the broken ones. A list, or a section that may be left out, goes whole."""
    whole = isinstance(value, list | tuple) or path[-1:] == ("tls",)
    if path in broken or (whole and any(one[: len(path)] == path for one in broken)):
        return None
    if not isinstance(value, dict):
        return value
    kept = {name: _pruned(inner, broken, (*path, name)) for name, inner in value.items()}
    return {name: inner for name, inner in kept.items() if inner is not None}


def _nested(section: BaseModel) -> dict[str, Any]:
    values = {name: getattr(section, name) for name in type(section).model_fields}
    return {name: _nested(value) if isinstance(value, BaseModel) else value for name, value in values.items()}


def _path_of(key: str) -> KeyPath:
    return tuple(int(part) if part.isdigit() else part for part in key.split("."))


def _read(path: Path, environ: Mapping[str, str]) -> Document:
    """The file as a document. Raises InvalidConfig when it cannot be read as text at all."""
    try:
        if path.exists() and not path.is_file():  # a pipe or a device could block for ever
            raise OSError(errno.EINVAL, "it is no regular file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the name is not a path"
        raise InvalidConfig(
            [Problem(str(path), 0, 0, "", f"cannot be read ({reason}); mend: check the path")]
        ) from None
    if len(content) > MAX_FILE_BYTES:
        message = f"is larger than {MAX_FILE_BYTES} bytes, so it is no configuration; mend: check the path"
        raise InvalidConfig([Problem(str(path), 1, 1, "", message)])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        message = "is not UTF-8; mend: save the file as UTF-8"
        raise InvalidConfig([Problem(str(path), line, column, "", message)]) from None
    return decode(text, str(path), environ, _TEXT_KEYS)


def _key_in(path: Path) -> str:
    """The key in a file, without the white space around it. Raises ValueError with a message."""
    try:
        if not path.is_file():  # a pipe or a device could block for ever
            raise ValueError(
                "names no regular file; mend: check the path, which counts from the configuration's folder"
            )
        with path.open("rb") as file:
            content = file.read(MAX_KEY_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"names a file that cannot be read ({error.strerror}); mend: check its permissions") from None
    if len(content) > MAX_KEY_FILE_BYTES:
        raise ValueError(f"names a file larger than {MAX_KEY_FILE_BYTES} bytes; mend: check the path")
    try:
        return checked_key(content.decode("ascii", errors="replace").strip())
    except ValueError as error:
        raise ValueError(f"names a file whose content {error}") from None
