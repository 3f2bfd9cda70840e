"""Certificates of an authority that only the tests trust, in files that change as orchestrators change them."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


@dataclass
class Files:
    """One certificate and its key in a folder; `renew` puts others in their place."""

    folder: Path
    authority: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.renew()

    @property
    def section(self) -> dict[str, str]:
        """What a configuration says of them."""
        return {"cert_file": str(self.folder / "tls.crt"), "key_file": str(self.folder / "tls.key")}

    @property
    def ca_file(self) -> Path:
        path = self.folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(path))
        return path

    def renew(self) -> bytes:
        """Write a new pair over the old one; the certificate as clients see it."""
        pair = self.authority.issue_cert("127.0.0.1", "localhost")
        write(self.folder, pair)
        return der(pair)

    def encrypt_key(self) -> None:
        path = self.folder / "tls.key"
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        encryption = serialization.BestAvailableEncryption(b"secret")
        form = serialization.PrivateFormat.PKCS8
        path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, encryption))

    def client_context(self, pair: trustme.LeafCert | None = None) -> ssl.SSLContext:
        """How a client trusts the authority, and shows a certificate of its own where it has one."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if pair is not None:
            pair.configure_cert(context)
        return context


def write(folder: Path, pair: trustme.LeafCert) -> None:
    (folder / "tls.crt").write_bytes(b"".join(each.bytes() for each in pair.cert_chain_pems))
    (folder / "tls.key").write_bytes(pair.private_key_pem.bytes())


def der(pair: trustme.LeafCert) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.cert_chain_pems[0].bytes().decode())
