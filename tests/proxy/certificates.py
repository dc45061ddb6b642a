"""Certificates for tests: authorities, and contexts of either side that trust them."""

from __future__ import annotations

import ssl
from functools import cache
from typing import TYPE_CHECKING

import trustme

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.1"


@cache
def authority(name: str = "tests") -> trustme.CA:
    """An authority; the same one for the same name."""
    return trustme.CA(organization_name=name, key_type=trustme.KeyType.ECDSA)


@cache
def server_context() -> ssl.SSLContext:
    """Of a server at 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(HOST, "localhost").configure_cert(context)
    return context


@cache
def client_context() -> ssl.SSLContext:
    """Of a client that trusts the authority, and checks no name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    authority().configure_trust(context)
    return context


def write_pair(directory: Path, *names: str, ca: str = "tests") -> tuple[Path, Path]:
    """Write a certificate for these names, and its key; return their paths."""
    leaf = authority(ca).issue_cert(*names)
    cert, key = directory / "tls.crt", directory / "tls.key"
    cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    key.write_bytes(leaf.private_key_pem.bytes())
    return cert, key


def write_ca(directory: Path, ca: str = "tests") -> Path:
    """Write the authority's certificate; return its path."""
    path = directory / f"{ca}.pem"
    authority(ca).cert_pem.write_to_path(str(path))
    return path
