"""What is published of the settings is complete and current."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.interpreter import ran

from proxy.config.problems import dotted
from proxy.config.reference import allowed, description, key_paths, schema, schema_at
from proxy.config.settings import Backends, Settings

ROOT = Path(__file__).resolve().parent.parent


def test_generated_files_are_current() -> None:
    check = ran(ROOT / "scripts" / "docs.py", "--check")
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize("path", list(key_paths()), ids=dotted)
def test_each_key_is_documented(path: tuple[str, ...]) -> None:
    key = schema_at(path)
    assert key is not None
    assert description(key).endswith(".")
    assert allowed(path, key)
    assert "default" in key or path[-1] in ("url", "cert_file", "key_file")
    assert f"`{path[-1]}`" in (ROOT / "docs" / "configuration.md").read_text()


def test_each_section_is_documented() -> None:
    sections = [schema_at((name,)) for name in Settings.model_fields]
    sections += [schema_at(("backends", name)) for name in Backends.model_fields]
    assert all(section and description(section).endswith(".") for section in sections)


def test_commented_file_holds_every_key_once() -> None:
    shipped = yaml.safe_load((ROOT / "config" / "crossover.yaml").read_text())
    for path in key_paths():
        here: Any = shipped
        for part in path:
            if here is None:  # of a section that is left out only the comment is there
                break
            assert part in here, dotted(path)
            here = here[part]


def test_every_example_of_the_commented_file_is_one_that_loads() -> None:
    text = (ROOT / "config" / "crossover.yaml").read_text()
    examples = re.findall(r"# Example: rules: (.*)", text)
    assert [yaml.safe_load(one)[0]["when"] for one in examples] == ["long_prompt"]


def test_published_schema_allows_a_variable_where_a_scalar_may_stand() -> None:
    published = schema()
    port = published["$defs"]["Listen"]["properties"]["port"]
    assert {"type": "string"}.items() <= port["anyOf"][-1].items()
    assert re.search(port["anyOf"][-1]["pattern"], "${PORT:-1}")
    assert "anyOf" not in published["$defs"]["Backend"]["properties"]["url"]


def test_published_schema_refuses_unknown_keys_and_has_no_private_words() -> None:
    published = schema()
    assert published["additionalProperties"] is False
    assert published["required"] == ["backends"]
    assert "x-words" not in str(published)
