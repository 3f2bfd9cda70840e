"""What may be written as a backend's url, a host to listen on, a page's origin and an API key, else the mend.

Each check returns the value or raises ValueError with a whole message; none quotes its input, since a url or a key
in the wrong place may hold a secret. Connecting and resolving names are not here.
"""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_HOST = re.compile(_NAME)
_ORIGIN = re.compile(rf"(https?)://({_NAME}|\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*\])(?::([0-9]{{1,5}}))?/?", re.IGNORECASE)
_WEB_ORIGIN = re.compile(rf"([a-z][a-z0-9+.-]*)://(?:{_NAME}|\[[0-9a-f.]*:[0-9a-f:.]*\])(?::([1-9][0-9]{{0,4}}))?")
_KEY = re.compile(r"[\x21-\x7e]+")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_URL_FORM = "must be http:// or https://, a host and a port; allowed: http://host:port; mend: "


def checked_url(url: str) -> str:
    """The origin of a backend, lower case, without a trailing slash. Raises ValueError."""
    match = _ORIGIN.fullmatch(url)
    if match is None or not _is_host(match[2].strip("[]")) or not 1 <= int(match[3] or 1) <= 65535:
        raise ValueError(_URL_FORM + _url_mend(url))
    return url.rstrip("/").lower()


def checked_host(host: str) -> str:
    """An address or name to listen on, IPv6 without brackets. Raises ValueError."""
    if _is_host(host):
        return host
    mend = "write an address, such as 0.0.0.0 (every IPv4 address), :: (every address) or 127.0.0.1 (this machine)"
    if host == "*":
        mend = "write 0.0.0.0 for every IPv4 address, or :: for every address"
    elif host.startswith("["):
        mend = "write the IPv6 address without brackets"
    elif "/" in host:
        mend = "write the host alone, without a scheme or a path"
    elif host.count(":") == 1:
        mend = "write the host alone, and its port under `port`"
    raise ValueError(f"must be one host; allowed: an IP address or a host name; mend: {mend}")


def checked_origin(origin: str) -> str:
    """The origin of a web page as browsers send it, or `*` for any. Raises ValueError."""
    match = _WEB_ORIGIN.fullmatch(origin)
    if origin == "*":
        return origin
    if match is None or origin != origin.lower():
        mend = "write scheme, host and port as the browser's address line shows them, in lower case and without a path"
    elif match[2] is not None and int(match[2]) == _DEFAULT_PORTS.get(match[1]):
        mend = f"leave out :{match[2]}, since browsers do"
    else:
        return origin
    raise ValueError(f'must be the origin of a web page; allowed: https://host, http://host:port, "*"; mend: {mend}')


def checked_key(key: str) -> str:
    """A key that can be sent in a header. Raises ValueError."""
    if _KEY.fullmatch(key):
        return key
    fault = "must not be empty" if not key.strip() else "must be one word of printable ASCII characters"
    raise ValueError(f"{fault}; allowed: what an HTTP header can carry; mend: check it for spaces and line breaks")


def origin(url: str) -> tuple[str, int]:
    """(host, port) of a checked url, for comparing: `localhost` is 127.0.0.1, a missing port its scheme's own."""
    parts = urlsplit(url)
    return same_host(parts.hostname or ""), parts.port or _DEFAULT_PORTS[parts.scheme]


def same_host(host: str) -> str:
    """One spelling for each host: lower case, `localhost` as 127.0.0.1, IPv6 in its short form."""
    if host.lower() == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def _is_host(host: str) -> bool:
    if ":" not in host and not host.replace(".", "").isdigit():
        return len(host) <= 253 and _HOST.fullmatch(host) is not None
    try:  # meant as an address, so it must be one
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def _url_mend(url: str) -> str:
    if not re.match(r"https?://", url, re.IGNORECASE):
        return "begin it with http:// or https://"
    try:
        parts = urlsplit(url)
        return _part_mend(parts)
    except ValueError:
        return "write an IPv6 address in brackets, such as http://[::1]:30001, and a port from 1 to 65535"


def _part_mend(parts: SplitResult) -> str:
    if "@" in parts.netloc:
        return "remove user and password; a key goes into api_key"
    if parts.query or parts.fragment:
        return "remove all that follows the port"
    if parts.path not in ("", "/"):
        return "remove the path; each request brings its own, /v1 included"
    if parts.hostname and parts.netloc.count(":") > 1 and "[" not in parts.netloc:
        return "write an IPv6 address in brackets, such as http://[::1]:30001"
    if parts.port == 0:  # and over 65535 urlsplit raises ValueError
        return "write a port from 1 to 65535"
    return "check the host: letters, digits, dots and dashes, without spaces"
