"""Who a request says it is: the keys in its headers, compared so that time does not tell how near a guess came.

A key is a long random text, so a plain SHA-256 of it may lie in a file: slow, salted hashes protect passwords, which
can be guessed, and 256 random bits cannot. Not here: the file that holds the digests (client_keys.py).
"""

import base64
import binascii
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from proxy.protocol.headers import Pairs

# As OpenAI's clients send a key, then Anthropic's, then Azure's.
_BEARER, _PLAIN = "authorization", ("x-api-key", "api-key")


@dataclass(frozen=True, slots=True)
class ClientKey:
    """One client that may come in: its name, which logs and metrics may show, and the SHA-256 of its key."""

    name: str
    digest: bytes


def presented_keys(pairs: Pairs) -> tuple[str, ...]:
    """The keys that a request carries, at most one a header: of a header that is given twice the first counts."""
    first: dict[str, str] = {}
    for name, value in pairs:
        first.setdefault(name.lower(), value)
    found = (_after("bearer", first.get(_BEARER, "")), *(first.get(name, "").strip() for name in _PLAIN))
    return tuple(key for key in found if key)


def client_of(clients: Sequence[ClientKey], keys: Sequence[str]) -> str | None:
    """The name of the client whose key is among `keys`; None where there is no such client.

    Every key is compared with every client's, whole and to the end: how long it takes depends on their numbers alone.
    """
    found = None
    for key in keys:
        digest = _digest(key)
        for client in clients:
            same = hmac.compare_digest(digest, client.digest)
            found = client.name if same and found is None else found
    return found


def carries_token(authorization: str, token: str) -> bool:
    """Whether an Authorization header carries the token: as `Bearer`, or as the password of `Basic`, whatever the user.

    Of both the digests are compared, so that not even the token's length shows.
    """
    said = _after("bearer", authorization) or _password(_after("basic", authorization))
    return hmac.compare_digest(_digest(said), _digest(token))


def _after(scheme: str, authorization: str) -> str:
    """The credentials of an Authorization header of this scheme, "" for any other."""
    said, _, credentials = authorization.strip().partition(" ")
    return credentials.strip() if said.lower() == scheme else ""


def _password(credentials: str) -> str:
    try:
        return base64.b64decode(credentials, validate=True).decode("latin-1").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()
