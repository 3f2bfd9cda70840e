"""From a file, or a mapping in code, to frozen settings: whole, or not at all with every problem named at once.

Watching the file and swapping settings in is not here (wire/), nor is any rule about a single key (settings.py).
"""

import errno
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError

from proxy.config.certificates import file_problems, files_of
from proxy.config.conflicts import conflicts, missing_speeds
from proxy.config.key_files import Sources, read_clients_file, read_key
from proxy.config.marks import Marks, mark
from proxy.config.problems import InvalidConfig, KeyPath, Problem
from proxy.config.sections import Section
from proxy.config.settings import EXAMPLE_URLS, Settings, Tls
from proxy.config.traces_keys import Headers, read_headers
from proxy.config.yaml_nodes import Document, decode
from proxy.model import ROLES, Role
from proxy.routing.curves import Curves

# A full configuration has about 10 KiB. Larger is another file, and would hold the event loop for seconds.
MAX_FILE_BYTES = 1 << 20

_TEXT_KEYS = frozenset(
    {
        *("api_key", "api_key_file", "api_keys_file", "token", "token_file", "curves_file"),
        *("cert_file", "key_file", "client_ca_file", "headers_file"),
    }
)
# Keys that name a file with a secret, each with the key that the secret is for.
_SECRETS: dict[KeyPath, str] = {
    **{("backends", role.value, "api_key_file"): "api_key" for role in ROLES},
    ("admin", "token_file"): "token",
}
_CLIENTS = ("listen", "api_keys_file")
_CURVES = ("routing", "curves_file")
_LEARNED = ("routing", "learn", "state_file")
_HEADERS = ("traces", "headers_file")


def load(path: Path, environ: Mapping[str, str]) -> Settings:
    """Read the configuration file, with `${VAR}` filled from `environ` and key files read. Blocks on the disk.

    Raises InvalidConfig with all problems.
    """
    marks = {path: mark(path)}
    try:
        document = _read(path, environ)
    except InvalidConfig as error:
        raise InvalidConfig(error.problems, marks) from None
    return _settled(document, path.parent, marks, path)


def from_mapping(values: Mapping[str, Any], folder: Path = Path()) -> Settings:
    """Settings built in code from nested plain values, under the same rules as a file; key files count from `folder`.

    Raises InvalidConfig with all problems, without line numbers.
    """
    return _settled(Document("settings", dict(values)), folder, {}, None)


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
    return changed.read_from(settings.sources)


def _settled(document: Document, folder: Path, marks: Marks, path: Path | None) -> Settings:
    """The settings with all that is in the files they name. Raises InvalidConfig."""
    settings, problems = _validated(document)
    for key, target in _SECRETS.items():
        try:
            if (file := _named(settings, key, folder, marks)) is not None:
                settings = _with(settings, (*key[:-1], target), SecretStr(read_key(file)))
        except ValueError as error:
            problems.append(document.problem(key, str(error)))
    clients = None
    try:
        if (file := _named(settings, _CLIENTS, folder, marks)) is not None:
            clients, faults = read_clients_file(file)
            problems += faults
    except ValueError as error:
        problems.append(document.problem(_CLIENTS, str(error)))
    curves = None
    try:
        if (file := _named(settings, _CURVES, folder, marks)) is not None:
            curves, faults = _speeds(settings, file, document)
            problems += faults
    except ValueError as error:
        problems.append(document.problem(_CURVES, str(error)))
    headers, faults = _headers(settings, folder, marks, document)
    problems += faults
    settings = _all_placed(settings, folder)
    marks |= {file: mark(file) for file in files_of(settings)}
    problems += [document.problem(key, message) for key, message in file_problems(settings)]
    if problems:
        raise InvalidConfig(problems, marks)
    return settings.read_from(Sources(marks, clients, curves, headers, path))


def _named(settings: Settings, path: KeyPath, folder: Path, marks: Marks) -> Path | None:
    """The file that a key names, marked before it is read."""
    value: Any = settings
    for part in path:
        value = getattr(value, str(part))
    if value is None:
        return None
    marks[folder / value] = mark(folder / value)
    return folder / str(value)


def _headers(settings: Settings, folder: Path, marks: Marks, document: Document) -> tuple[Headers, list[Problem]]:
    """The headers in the file that the section of traces names, and what is wrong with it."""
    try:
        file = _named(settings, _HEADERS, folder, marks)
        return (() if file is None else read_headers(file)), []
    except ValueError as error:
        return (), [document.problem(_HEADERS, str(error))]


def _speeds(settings: Settings, file: Path, document: Document) -> tuple[Curves | None, list[Problem]]:
    """The speeds in a file, and every problem of it and of the policy with it. Raises ValueError with a message."""
    from proxy.config.curves_file import read_curves  # noqa: PLC0415 - not for a start without one

    curves, problems = read_curves(file)
    if (lack := missing_speeds(settings, curves)) is not None:
        problems.append(document.problem(_CURVES, lack))
    return curves, problems


def _all_placed(settings: Settings, folder: Path) -> Settings:
    """The same settings, with files that are not read here by paths that hold from the working directory."""
    for section in ("listen", "admin"):
        settings = _with(settings, (section, "tls"), _placed(getattr(settings, section).tls, folder))
    state_file = settings.routing.learn.state_file
    return settings if state_file is None else _with(settings, _LEARNED, str(folder / state_file))


def _placed(tls: Tls | None, folder: Path) -> Tls | None:
    """The same files, by paths that hold from the working directory."""
    if tls is None:
        return None
    names = {name: getattr(tls, name) for name in Tls.model_fields}
    return tls.model_copy(update={name: str(folder / file) for name, file in names.items() if file is not None})


def _with(section: Section, path: KeyPath, value: object) -> Any:
    """The section with one key below it changed."""
    name = str(path[0])
    return section.model_copy(
        update={name: value if len(path) == 1 else _with(getattr(section, name), path[1:], value)}
    )


def _validated(document: Document, of_interest: frozenset[str] | None = None) -> tuple[Settings, list[Problem]]:
    """Settings and problems. Where a value is refused its default stands in, so that all else can still be checked."""
    problems = list(document.problems)
    try:
        settings = Settings.model_validate(_with_backends(document.values))
    except ValidationError as error:
        from proxy.config.mends import schema_problems  # noqa: PLC0415 - not for a start that goes well

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
