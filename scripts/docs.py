"""Writes what the code tells: config/crossover.yaml and, in docs/, configuration, metrics, logs and the schemas.

Usage: .venv/bin/python scripts/docs.py [--check]; --check writes nothing and exits 1 when a file is stale. The words
about single keys are not here: they are the docstrings in proxy/config/settings.py.
"""

import json
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from docs_logs import line_schema, logs_page  # noqa: E402 - beside this file
from docs_metrics import metrics_page  # noqa: E402 - beside this file

from proxy.config import RESTART_KEYS  # noqa: E402 - the tree's own package, wherever this is run from
from proxy.config.problems import KeyPath, dotted  # noqa: E402
from proxy.config.reference import (  # noqa: E402
    Schema,
    allowed,
    description,
    schema,
    schema_at,
)
from proxy.config.settings import EXAMPLE_URLS  # noqa: E402
from proxy.model import Role  # noqa: E402

WIDTH = 100

YAML_HEAD = """\
# yaml-language-server: $schema=../docs/crossover.schema.json
#
# The configuration of Crossover: every key with its default. Only the two urls are needed; leave out what you do not
# change. `crossover check FILE` names every mistake with its line; docs/configuration.md says more.
#
# Written by scripts/docs.py from proxy/config/settings.py: change it there, and copy this file to use it.
"""

PAGE_HEAD = """\
# Configuration

<!-- Written by scripts/docs.py from proxy/config/settings.py: change it there. -->

One YAML file. [config/crossover.yaml](../config/crossover.yaml) holds every key with its default, and
[crossover.schema.json](crossover.schema.json) lets an editor complete and check it. The least that is needed:

```yaml
backends:
  speculative: {url: "http://127.0.0.1:30001"}
  baseline: {url: "http://127.0.0.1:30002"}
```

`crossover check FILE` does all that a start does short of starting. Every mistake is reported at once, with file, line,
column, key, what is allowed and the mend. A file with a mistake starts nothing; in a reload it changes nothing, and the
settings in force stay.

## How it is read

- Unknown keys, keys given twice and wrong types are mistakes. Booleans are `true` and `false`; numbers stand without
  quotes; durations are seconds and sizes are bytes, as plain numbers.
- `${VARIABLE}` takes an environment variable, `${VARIABLE:-default}` gives it a default, and `$${` is the text `${`.
  It works in every value, whole or in part; within `{ }` and `[ ]` YAML wants quotes around it. A variable that is not
  set, or is empty, is a mistake. What comes in is read as if it had been written there, so `port: ${PORT}` is a number.
- Secrets belong in a variable (`api_key: "${ENGINE_KEY}"`) or a file of their own (`api_key_file`). They are never
  shown: not in messages, logs, or the settings in force, where they read `***`.
- Anchors, aliases, merge keys (`<<`), tags and several documents in one file are not supported. The file is UTF-8 and
  at most 1 MiB.
- A section without keys, and a file without a section, mean the defaults.

## What may not stand together

- `routing.enter_at` at or above `routing.leave_at`
- `listen` and `admin` on one port of one host
- `listen.max_held_body_bytes` below `listen.max_body_bytes`
- two backends with one url, or a backend with the url of the proxy itself
- `api_key` beside `api_key_file`, or `admin.token` beside `admin.token_file`
- `"*"` beside other origins in `listen.cors_origins`
- `min_prompt_bytes` in a rule other than `long_prompt`, or a `long_prompt` rule without it; a rule that an earlier one
  leaves nothing to; `min_prompt_bytes` above `listen.max_body_bytes`
- `timeouts.first_byte_s` below `timeouts.connect_s`
"""


def main() -> int:
    """Returns the exit code: 0, or 1 when --check finds a stale file."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale; mend: .venv/bin/python scripts/docs.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages()[path], "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


def pages() -> dict[Path, str]:
    """Every file that this script owns, with the text it should have."""
    return {
        ROOT / "config" / "crossover.yaml": "\n".join((YAML_HEAD, *yaml_lines(()))).rstrip() + "\n",
        ROOT / "docs" / "configuration.md": "\n".join((PAGE_HEAD, *page_lines(()))).rstrip() + "\n",
        ROOT / "docs" / "crossover.schema.json": json.dumps(schema(), indent=2) + "\n",
        ROOT / "docs" / "metrics.md": metrics_page(),
        ROOT / "docs" / "logs.md": logs_page(),
        ROOT / "docs" / "request_settled.schema.json": json.dumps(line_schema(), indent=2) + "\n",
    }


# ---------------------------------------------------------------- the commented example


def yaml_lines(path: KeyPath) -> Iterator[str]:
    """The keys below `path` as YAML, each under its comment."""
    indent = "  " * len(path)
    for name in properties(path):
        here = (*path, name)
        if is_optional(here):
            yield from comment(description(known(here)), indent)
            yield from key_comments(here, indent)
            yield f"{indent}{name}: null"
            continue
        if is_section(here):
            yield from comment(description(known(here)), indent)
            yield f"{indent}{name}:"
            yield from yaml_lines(here)
            if len(here) == 1:
                yield ""
            continue
        if here[:2] == ("backends", "baseline"):  # the same keys again
            yield f"{indent}{name}: {written(here)}"
            continue
        yield from comment(description(known(here)), indent)
        yield from comment(" ".join(facts(here)), indent)
        if "items" in known(here) and is_section((*here, 0)):
            yield from entry_comment(here, indent)
        elif "items" in known(here):
            yield from comment(f"Example: {name}: {json.dumps(known(here)['examples'][0])}", indent)
        yield f"{indent}{name}: {written(here)}"
        if len(here) == 1:
            yield ""


def key_comments(path: KeyPath, indent: str) -> Iterator[str]:
    """The keys of a section or an entry that the default does not show."""
    for name in properties(path):
        here = (*path, name)
        yield from comment(f"  {name}: {description(known(here))} Allowed: {allowed(here, known(here))}.", indent)


def entry_comment(path: KeyPath, indent: str) -> Iterator[str]:
    """The keys of a list's entries, which a default of [] does not show."""
    yield from key_comments((*path, 0), indent)
    example = known(path)["examples"][0][0]
    entry = ", ".join(f"{name}: {example[name]}" for name in properties((*path, 0)))
    yield from comment(f"Example: {path[-1]}: [{{{entry}}}]", indent)


def facts(path: KeyPath) -> Iterator[str]:
    """Range and default of a key, and what a change takes, as sentences."""
    yield f"Allowed: {allowed(path, known(path))}."
    if dotted(path) in RESTART_KEYS:
        yield "A change takes a restart."


def comment(text: str, indent: str) -> Iterator[str]:
    """The text as comment lines. Leading spaces of the text stay on each line."""
    inner = text[: len(text) - len(text.lstrip())]
    for line in textwrap.wrap(text.strip(), WIDTH - len(indent) - len(inner) - 2, break_on_hyphens=False):
        yield f"{indent}# {inner}{line}"


# ---------------------------------------------------------------- the reference page


def page_lines(path: KeyPath) -> Iterator[str]:
    """A chapter for each section and for each key outside one; a row for each key."""
    names = properties(path)
    rows = [name for name in names if not is_section((*path, name)) or is_optional((*path, name))]
    if path:
        yield f"\n## {dotted(path).replace('.0', '[]')}\n"
        yield description(known(path)) + "\n"
    if path[:2] == ("backends", "baseline"):
        yield "The same keys as `backends.speculative`."
    elif path and rows:
        yield from table((*path, name) for name in rows)
    for name in names:
        here = (*path, name)
        if is_section(here):
            yield from page_lines(here)
        elif "items" in known(here) and is_section((*here, 0)):
            yield from page_lines((*here, 0))
        elif not path:
            yield f"\n## {name}\n"
            yield from table([here])


def table(paths: Iterable[KeyPath]) -> Iterator[str]:
    """Keys with what they mean, may hold and are by default."""
    yield "| key | meaning | allowed | default |"
    yield "|---|---|---|---|"
    for path in paths:
        yield row(path)


def row(path: KeyPath) -> str:
    """One key as a row of its section's table."""
    meaning = description(known(path)) + (" A change takes a restart." if dotted(path) in RESTART_KEYS else "")
    default = f"`{written(path)}`" if "default" in known(path) else "required"
    values = "null, or the keys below" if is_optional(path) else allowed(path, known(path))
    return f"| `{path[-1]}` | {meaning} | {values} | {default} |"


# ---------------------------------------------------------------- the schema, asked


def known(path: KeyPath) -> Schema:
    """The schema of a key that exists."""
    found = schema_at(path)
    assert found is not None
    return found


def properties(path: KeyPath) -> tuple[str, ...]:
    """The names of the keys in a section, in the order of the file."""
    return tuple(known(path).get("properties", ()))


def is_section(path: KeyPath) -> bool:
    """Whether a key holds further keys."""
    return "properties" in known(path)


def is_optional(path: KeyPath) -> bool:
    """Whether a key holds further keys or null."""
    return is_section(path) and "default" in known(path) and known(path)["default"] is None


def written(path: KeyPath) -> str:
    """The default as it is written in YAML; the example where there is none."""
    if path[-1] == "url":
        return f'"{EXAMPLE_URLS[Role(str(path[-2]))]}"'
    value = known(path)["default"]
    if isinstance(value, float):
        return f"{value:.12g}"
    return value if isinstance(value, str) else json.dumps(value)


if __name__ == "__main__":
    sys.exit(main())
