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

from proxy.protocol.fields import Fields, raw

# As OpenAI's clients send a key, then Anthropic's, then Azure's.
_BEARER, _PLAIN = b"authorization", (b"x-api-key", b"api-key")

# Names of people and of machines are shorter; what is longer is a password or a key.
MAX_USER_CHARS = 32


@dataclass(frozen=True, slots=True)
class ClientKey:
    """One client that may come in: its name, which logs and metrics may show, and the SHA-256 of its key."""

    name: str
    digest: bytes


def presented_keys(fields: Fields) -> tuple[bytes, ...]:
    """The keys that a request carries, at most one a field: of a field that is given twice the first counts."""
    first: dict[bytes, bytes] = {}
    for name, value in fields:
        first.setdefault(name.lower(), value)
    found = (_after(b"bearer", first.get(_BEARER, b"")), *(first.get(name, b"").strip() for name in _PLAIN))
    return tuple(key for key in found if key)


def client_of(clients: Sequence[ClientKey], keys: Sequence[bytes]) -> str | None:
    """The name of the client whose key is among `keys`; None where there is no such client.

    Every key is compared with every client's, whole and to the end: how long it takes depends on their numbers alone.
    """
    found = None
    for key in keys:
        digest = sha256(key).digest()
        for client in clients:
            same = hmac.compare_digest(digest, client.digest)
            found = client.name if same and found is None else found
    return found


def carries_token(authorization: str, token: str) -> bool:
    """Whether an Authorization header carries the token: as `Bearer`, or as the password of `Basic`, whatever the user.

    Of both the digests are compared, so that not even the token's length shows.
    """
    given = raw(authorization)
    said = _after(b"bearer", given) or _password(_after(b"basic", given))
    return hmac.compare_digest(sha256(said).digest(), sha256(raw(token)).digest())


def user_of(authorization: str, token: str | None) -> str | None:
    """The user that an Authorization header of `Basic` names, for the log; None where it names none, or where what
    stands there is no name to show: longer than one, or the token itself, put into the wrong field."""
    try:
        decoded = base64.b64decode(_after(b"basic", raw(authorization)), validate=True)
    except binascii.Error:
        return None
    user = decoded.partition(b":")[0].decode("latin-1")
    shown = 0 < len(user) <= MAX_USER_CHARS and user.isascii() and user.isprintable()
    return user if shown and (token is None or token not in user) else None


def _after(scheme: bytes, authorization: bytes) -> bytes:
    """The credentials of an Authorization field of this scheme, b"" for any other."""
    said, _, credentials = authorization.strip().partition(b" ")
    return credentials.strip() if said.lower() == scheme else b""


def _password(credentials: bytes) -> bytes:
    try:
        decoded = base64.b64decode(credentials, validate=True)
    except binascii.Error:
        return b""
    # What is not ASCII is taken for Latin-1 (RFC 7617, section 2), and compared with the token as UTF-8.
    return raw(decoded.partition(b":")[2].decode("latin-1"))
