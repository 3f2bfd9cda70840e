"""Certificate files to TLS contexts, with what is wrong with the files said so that it can be mended.

Shaking hands is in wire/tls.py; which sections may have TLS is in settings.py.
"""

import ssl
from pathlib import Path

from proxy.config.key_files import content_of
from proxy.config.problems import InvalidConfig, KeyPath, Problem, dotted
from proxy.config.settings import Settings, Tls

_CERTIFICATE, _KEY = b"-----BEGIN CERTIFICATE-----", b"PRIVATE KEY-----"
# A chain has some KiB and a bundle of all public authorities a quarter of a MiB: larger is another file.
MAX_FILE_BYTES = 1 << 22


class _Fault(Exception):
    """What is wrong with one of the files, by its key."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
        self.message = message


class _Encrypted(Exception):
    """A key that asks for a password; there is nobody to type it."""


def contexts(settings: Settings) -> dict[str, ssl.SSLContext]:
    """A context for each section that has TLS, from the files as they are now. Blocks on the disk.

    Raises InvalidConfig with all problems.
    """
    made, faults = _contexts(settings)
    if faults:
        raise InvalidConfig(Problem("settings", 0, 0, dotted(path), message) for path, message in faults)
    return made


def file_problems(settings: Settings) -> list[tuple[KeyPath, str]]:
    """What keeps a section's files from being used, one fault a section, as (path, message). Blocks on the disk."""
    return _contexts(settings)[1]


def _contexts(settings: Settings) -> tuple[dict[str, ssl.SSLContext], list[tuple[KeyPath, str]]]:
    made: dict[str, ssl.SSLContext] = {}
    faults: list[tuple[KeyPath, str]] = []
    for section, tls in sections(settings).items():
        try:
            made[section] = _context(tls)
        except _Fault as fault:
            faults.append(((section, "tls", fault.key), fault.message))
    return made, faults


def sections(settings: Settings) -> dict[str, Tls]:
    """The sections that have TLS."""
    both = {"listen": settings.listen.tls, "admin": settings.admin.tls}
    return {section: tls for section, tls in both.items() if tls is not None}


def files_of(settings: Settings) -> tuple[Path, ...]:
    """The files of all sections that have TLS."""
    files = [file for tls in sections(settings).values() for file in (tls.cert_file, tls.key_file, tls.client_ca_file)]
    return tuple(Path(file) for file in files if file is not None)


def _context(tls: Tls) -> ssl.SSLContext:
    _require("cert_file", tls.cert_file, _CERTIFICATE, "a certificate")
    _require("key_file", tls.key_file, _KEY, "a private key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, password=_no_password)
    except _Encrypted:
        message = "names a key that is encrypted, and nobody types its password; mend: decrypt it (openssl pkey)"
        raise _Fault("key_file", message) from None
    except (OSError, ValueError) as error:
        raise _unusable(error) from None
    if tls.client_ca_file is not None:
        _require("client_ca_file", tls.client_ca_file, _CERTIFICATE, "a certificate")
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(tls.client_ca_file)
        except (OSError, ValueError) as error:
            message = f"names a file that is no list of certificates ({_reason(error)}); mend: write PEM into it"
            raise _Fault("client_ca_file", message) from None
    return context


def _unusable(error: Exception) -> _Fault:
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return _Fault("key_file", "names a key that is not the certificate's; mend: name the two files of one pair")
    return _Fault(
        "cert_file",
        f"cannot be used together with key_file ({_reason(error)}); mend: check both files with openssl x509 and pkey",
    )


def _require(key: str, name: str, mark: bytes, what: str) -> None:
    """Raises _Fault unless the file is there and looks right. What is in it is in no message."""
    try:
        content = content_of(Path(name), MAX_FILE_BYTES)
    except ValueError as error:
        raise _Fault(key, str(error)) from None
    if mark not in content:
        raise _Fault(key, f"names a file without {what} in PEM; mend: check that it is the right one")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason.replace("_", " ").lower() if error.reason else "not PEM inside"
    return getattr(error, "strerror", None) or type(error).__name__


def _no_password() -> str:
    raise _Encrypted
