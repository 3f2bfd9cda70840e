"""The gate looks at a request's line and fields alone, and says to browsers what the setting says."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import cast

import pytest

from proxy.errors import KeyRefused
from proxy.gate import Gate
from proxy.protocol.allowlist import ROUTES, EngineKind
from proxy.protocol.credentials import ClientKey
from proxy.protocol.fields import Fields, by_name
from proxy.wire.request import Request

PAGE, OTHER = b"https://page.example", b"https://other.example"
CHAT = "/v1/chat/completions"
ASKS = (b"Access-Control-Request-Method", b"POST")
ALPHA = ClientKey("alpha", sha256(b"a").digest())


@dataclass
class Asked:
    """All of a request that the gate may look at."""

    method: str = "POST"
    target: str = CHAT
    fields: Fields = field(default_factory=list)

    @property
    def by_name(self) -> dict[bytes, bytes]:
        return by_name(self.fields)


def asked(*fields: tuple[bytes, bytes], method: str = "POST", target: str = CHAT) -> Request:
    return cast(Request, Asked(method, target, list(fields)))


def preflight(*fields: tuple[bytes, bytes], target: str = CHAT) -> Request:
    return asked((b"Origin", PAGE), *fields, method="OPTIONS", target=target)


def names(fields: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    return [name.lower() for name, _ in fields]


def test_all_may_pass_where_no_clients_are_listed() -> None:
    assert Gate().admit(asked()) is None


def test_a_client_passes_by_the_first_of_its_keys_and_nobody_without_one() -> None:
    gate = Gate((ALPHA,))
    assert gate.admit(asked((b"x-api-key", b"a"), (b"X-API-KEY", b"b"))) == "alpha"
    for fields, word in (((b"Authorization", b"Bearer b"), "not known"), ((b"Cookie", b"a"), "needed")):
        with pytest.raises(KeyRefused, match=word):
            gate.admit(asked(fields))


def test_without_origins_fields_pass_untouched() -> None:
    fields = [(b"Access-Control-Allow-Origin", b"*")]
    assert Gate().stamp(asked((b"Origin", PAGE)), fields) is fields


def test_a_page_may_read_any_answer_and_the_fields_given_are_not_changed() -> None:
    fields = [(b"Access-Control-Max-Age", b"9"), (b"ACCESS-CONTROL-ALLOW-ORIGIN", b"*"), (b"Vary", b"Accept")]
    came = list(fields)
    stamped = Gate(origins=(PAGE,)).stamp(asked((b"Origin", PAGE)), fields)
    assert fields == came
    assert stamped[0] == (b"Vary", b"Accept")
    assert stamped[1] == (b"Access-Control-Allow-Origin", PAGE)
    assert names(stamped)[2:] == [b"access-control-expose-headers", b"vary"]


@pytest.mark.parametrize("fields", [[(b"Origin", OTHER)], [], [(b"Origin", PAGE), (b"Origin", PAGE)]])
def test_a_page_that_is_not_listed_is_told_nothing(fields: Fields) -> None:
    stamped = Gate(origins=(PAGE,)).stamp(asked(*fields), [(b"access-control-allow-origin", b"*")])
    assert stamped == [(b"Vary", b"Origin")]


def test_a_preflight_is_answered_and_its_answer_keeps_what_it_says() -> None:
    gate, request = Gate((ALPHA,), (PAGE,)), preflight(ASKS, (b"Access-Control-Request-Headers", b"authorization"))
    reply = gate.preflight(request, [EngineKind.SGLANG])
    assert reply is not None
    assert (reply.status, reply.body) == (204, b"")
    said = gate.stamp(request, reply.fields)
    assert dict(said)[b"Access-Control-Allow-Methods"] == b"POST"
    assert dict(said)[b"Access-Control-Allow-Origin"] == PAGE
    assert len(names(said)) == len(set(names(said)))


@pytest.mark.parametrize(
    "request_",
    [
        asked((b"Origin", PAGE), ASKS),
        asked(ASKS, method="OPTIONS"),
        asked((b"Origin", OTHER), ASKS, method="OPTIONS"),
        preflight(),
        preflight(ASKS, target="/flush_cache"),
    ],
    ids=["a request", "no page", "another page", "no method", "not served"],
)
def test_what_is_no_preflight_of_a_listed_page_is_not_answered_here(request_: Request) -> None:
    assert Gate(origins=(PAGE,)).preflight(request_, list(EngineKind)) is None


def test_no_engine_is_asked_what_only_browsers_ask() -> None:
    assert not any("OPTIONS" in row.methods for rows in ROUTES.values() for row in rows)
