"""Whatever the proxy tells becomes JSON: what JSON cannot carry is written so that it can."""

from dataclasses import dataclass

import orjson
import pytest

from proxy.model import Role
from proxy.watch.json_text import json_text


@dataclass(frozen=True, slots=True)
class Facts:
    name: str
    role: Role


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"path": "/caf\udce9"}, {"path": "/caf\\udce9"}),
        ({"\ud800": [1, None, True, 2.5]}, {"\\ud800": [1, None, True, 2.5]}),
        ((10**20, -(10**20), 2**64 - 1), [1e20, -1e20, 2**64 - 1]),
        ([10**400], [None]),
        ({"at": Facts("\udce9", Role.BASELINE)}, {"at": {"name": "\\udce9", "role": "baseline"}}),
        ([{1}, Role.SPECULATIVE, 10**20], [[1], "speculative", 1e20]),
        ([object, "plain"], ["<class 'object'>", "plain"]),
    ],
)
def test_what_json_cannot_carry_is_written_so_that_it_can(value: object, told: object) -> None:
    assert orjson.loads(json_text(value)) == told


def test_what_json_carries_is_as_it_is() -> None:
    assert json_text({"at": Facts("é", Role.BASELINE)}) == '{"at":{"name":"é","role":"baseline"}}'.encode()
