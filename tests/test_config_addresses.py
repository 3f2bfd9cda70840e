"""Urls, hosts and keys: what may be written, and the mend for what may not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.addresses import checked_host, checked_key, checked_origin, checked_url, origin, same_host


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("http://127.0.0.1:30001", "http://127.0.0.1:30001"),
        ("http://127.0.0.1:30001/", "http://127.0.0.1:30001"),
        ("HTTPS://Engine-1.Example", "https://engine-1.example"),
        ("http://sglang_speculative:80", "http://sglang_speculative:80"),
        ("http://[::1]:30001", "http://[::1]:30001"),
        ("http://a:65535", "http://a:65535"),
    ],
)
def test_origin_of_an_engine_is_accepted(written: str, url: str) -> None:
    assert checked_url(written) == url


@pytest.mark.parametrize(
    ("written", "mend"),
    [
        ("127.0.0.1:30001", "begin it with http://"),
        ("localhost:30001", "begin it with http://"),
        ("grpc://a:1", "begin it with http://"),
        ("", "begin it with http://"),
        ("http://a:1/v1", "remove the path"),
        ("http://a:1//", "remove the path"),
        ("http://u:p@a:1", "remove user and password"),
        ("http://u@a:1/v1?x", "remove user and password"),
        ("http://a:1?x=1", "remove all that follows the port"),
        ("http://a:1/#x", "remove all that follows the port"),
        ("http://::1:30001", "IPv6 address in brackets"),
        ("http://[::1:30001", "IPv6 address in brackets"),
        ("http://[::zz]:1", "IPv6 address in brackets"),
        ("http://a:0", "a port from 1 to 65535"),
        ("http://a:70000", "a port from 1 to 65535"),
        ("http://a:port", "a port from 1 to 65535"),
        ("http://", "check the host"),
        ("http://a b:1", "check the host"),
        ("http://bücher:1", "check the host"),
        ("http://999.1.1.1:1", "check the host"),
        ("http://a:1\n", "check the host"),
        ("http://-a:1", "check the host"),
    ],
)
def test_url_that_is_no_origin_is_refused_with_the_mend(written: str, mend: str) -> None:
    with pytest.raises(ValueError, match="must be http://") as caught:
        checked_url(written)
    assert mend in str(caught.value).partition("mend: ")[2]


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "::", "::1", "fe80::1", "localhost", "gpu-7.example"])
def test_host_to_listen_on_is_accepted(host: str) -> None:
    assert checked_host(host) == host


@pytest.mark.parametrize(
    ("host", "mend"),
    [
        ("0.0.0.0:30000", "its port under `port`"),
        ("http://0.0.0.0", "without a scheme or a path"),
        ("[::]", "without brackets"),
        ("*", "write 0.0.0.0 for every"),
        ("", "write an address"),
        ("256.0.0.1", "write an address"),
        ("fe80::1%eth0", "write an address"),
        ("a b", "write an address"),
        ("a" * 254, "write an address"),
    ],
)
def test_host_that_is_none_is_refused_with_the_mend(host: str, mend: str) -> None:
    with pytest.raises(ValueError, match="must be one host") as caught:
        checked_host(host)
    assert mend in str(caught.value)


def test_key_is_one_printable_word() -> None:
    assert checked_key("sk-1~!") == "sk-1~!"
    for key in ("", " ", "a b", "a\nb", "é", "a\x7f"):
        with pytest.raises(ValueError, match="must"):
            checked_key(key)


@pytest.mark.parametrize(
    "page",
    [
        *("*", "https://page.example", "http://localhost:3000", "http://127.0.0.1:8080", "https://[::1]:8443"),
        *("http://page.example:443", "app://local", "chrome-extension://abcdef", "tauri://localhost"),
    ],
)
def test_an_origin_of_a_page_is_taken_as_browsers_send_it(page: str) -> None:
    assert checked_origin(page) == page


@pytest.mark.parametrize(
    ("page", "mend"),
    [
        *((page, "without a path") for page in ("https://page.example/", "https://page.example/a", "page.example")),
        *((page, "in lower case") for page in ("https://Page.example", "HTTPS://page.example", "", "null", "https://")),
        *(
            (page, "as the browser's")
            for page in ("https://*.page.example", "https://a@b", "https://a?b", "https://a:")
        ),
        ("https://page.example:443", "leave out :443"),
        ("http://page.example:80", "leave out :80"),
        ("https://a, https://b", "scheme, host and port"),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused_with_the_mend(page: str, mend: str) -> None:
    with pytest.raises(ValueError, match="must be the origin of a web page") as caught:
        checked_origin(page)
    assert mend in str(caught.value)


def test_origins_compare_by_what_they_reach() -> None:
    assert origin("http://localhost:80") == origin("http://127.0.0.1") == ("127.0.0.1", 80)
    assert origin("https://[0:0::1]") == ("::1", 443)
    assert same_host("GPU.example") == "gpu.example"


@given(st.text(max_size=30) | st.from_regex(r"https?://[a-z0-9.:\[\]@/?#%-]{0,20}", fullmatch=True))
def test_checks_return_a_usable_value_or_raise_value_error(text: str) -> None:
    for check in (checked_url, checked_host, checked_key, checked_origin):
        try:
            value = check(text)
        except ValueError:
            continue
        assert value
        if check is checked_url:
            assert origin(value)[0]
            assert checked_url(value) == value
