"""Make the certificates of targets that speak TLS: new ones for each target, with EC keys (P-256)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.kafka.settings import HOST


@dataclass(frozen=True, slots=True)
class Certificate:
    """Paths of a certificate's files, all in PEM."""

    ca: Path
    """Certificate of the authority, with which clients check the target's certificate."""
    chain: Path
    key: Path
    """Private key in PKCS #8, the only format that Java reads."""
    both: Path
    """The certificate chain and the private key in one file, for HAProxy."""


def make(directory: Path) -> Certificate:
    """Create `directory` with the files of a new certificate for `HOST`. Raises OSError."""
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    leaf = authority.issue_cert(HOST, key_type=trustme.KeyType.ECDSA)
    directory.mkdir()
    made = Certificate(*(directory / name for name in ("ca.pem", "chain.pem", "key.pem", "both.pem")))
    chain = b"".join(part.bytes() for part in leaf.cert_chain_pems)
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    made.ca.write_bytes(authority.cert_pem.bytes())
    for file, content in ((made.chain, chain), (made.key, key), (made.both, chain + key)):
        file.write_bytes(content)
    return made
