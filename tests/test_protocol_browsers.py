"""Which names are ours, and what a browser says of who asks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.browsers import is_own_name, of_other_origin, of_other_site, opens_page


@pytest.mark.parametrize(
    "host",
    [
        *("", "127.0.0.1", "127.0.0.1:29000", "10.0.0.7:29000", "[::1]", "[::1]:29000", "[2001:db8::1]:80"),
        *("localhost", "LOCALHOST:29000", "localhost.", "node.localhost:1", "ops.internal", "OPS.internal:29000"),
    ],
)
def test_addresses_localhost_and_the_configured_host_are_our_own(host: str) -> None:
    assert is_own_name(host, "ops.internal")


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:29000", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost"),
        *("crossover", "ops.internal.evil.example", "xops.internal", "[evil.example]:29000", "evil.example."),
        *("127.0.0.1@evil.example", "1.2.3"),
    ],
)
def test_any_other_name_is_not(host: str) -> None:
    assert not is_own_name(host, "ops.internal")


@given(st.text(), st.text())
def test_whatever_stands_there_is_judged(host: str, own: str) -> None:
    assert is_own_name(host, own) in (True, False)


@given(st.ip_addresses(), st.integers(1, 65535))
def test_every_address_is_our_own_with_a_port_and_without(address: object, port: int) -> None:
    name = f"[{address}]" if ":" in str(address) else str(address)
    assert is_own_name(name, "127.0.0.1") and is_own_name(f"{name}:{port}", "127.0.0.1")


@pytest.mark.parametrize(("site", "other"), [("cross-site", 1), ("same-site", 1), ("same-origin", 0), ("none", 0)])
def test_a_page_of_another_site_is_known_by_what_the_browser_says(site: str, other: int) -> None:
    assert of_other_site({"Sec-Fetch-Site": site}) is bool(other)
    assert not of_other_site({})


def test_an_origin_is_ours_where_it_is_the_host_that_is_asked() -> None:
    assert not of_other_origin({"Host": "ops:1"})
    assert not of_other_origin({"Host": "ops:1", "Origin": "http://ops:1"})
    assert of_other_origin({"Host": "ops:1", "Origin": "http://ops:2"})
    assert of_other_origin({"Host": "ops:1", "Origin": "null"})
    assert of_other_origin({"Origin": "http://ops:2"})


@pytest.mark.parametrize(
    ("mode", "kind", "opens"),
    [("navigate", "document", 1), ("navigate", "iframe", 0), ("no-cors", "image", 0), ("cors", "empty", 0)],
)
def test_only_a_person_that_goes_there_opens_a_page(mode: str, kind: str, opens: int) -> None:
    assert opens_page({"Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": kind}) is bool(opens)
