"""What a browser says of where a request comes from: the page that asks, and the name that it asks by.

A browser asks this machine on behalf of any page that its person visits. Programs send none of it, or what they like:
this keeps other sites out, and nobody else.
"""

from collections.abc import Mapping
from ipaddress import ip_address

_ELSEWHERE = frozenset({"cross-site", "same-site"})


def of_other_site(headers: Mapping[str, str]) -> bool:
    """Whether a page of another site asks. Another port of this host is the same site, and another page all the
    same."""
    return headers.get("Sec-Fetch-Site") in _ELSEWHERE


def of_other_origin(headers: Mapping[str, str]) -> bool:
    """The same by the `Origin` that browsers send with whatever acts, also those that say no more."""
    origin = headers.get("Origin")
    return origin is not None and origin.partition("://")[2] != headers.get("Host", "")


def opens_page(headers: Mapping[str, str]) -> bool:
    """Whether a person follows a link or types an address, and is to see the answer itself."""
    return headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest", "document") == "document"


def is_own_name(host: str, own: str) -> bool:
    """Whether a `Host` is an address, localhost, or `own` (a host without a port). Any other name is whatever its owner
    makes of it: a page of that name may ask this machine as if it were its own server. None at all is no browser's."""
    name = _without_port(host.strip()).rstrip(".").lower()
    if name in ("", "localhost", own.rstrip(".").lower()) or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
