"""The certificates of targets that speak TLS, with EC keys (P-256): made anew for each."""

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
    """Files, all PEM."""

    ca: Path
    """What clients check with."""
    chain: Path
    key: Path
    """PKCS #8: Java reads nothing else."""
    both: Path
    """The chain and the key."""


def make(directory: Path) -> Certificate:
    """For `HOST`. Raises OSError."""
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
