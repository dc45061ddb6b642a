"""Certificates for tests: authorities, and contexts of either side that trust them."""

from __future__ import annotations

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"


def authority(name: str = "tests") -> trustme.CA:
    return _authority(name)


@cache
def _authority(name: str) -> trustme.CA:
    return trustme.CA(organization_name=name, key_type=trustme.KeyType.ECDSA)


@cache
def server_context() -> ssl.SSLContext:
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
    leaf = authority(ca).issue_cert(*names)
    cert, key = directory / "tls.crt", directory / "tls.key"
    cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    key.write_bytes(leaf.private_key_pem.bytes())
    return cert, key


def write_ca(directory: Path, ca: str = "tests") -> Path:
    path = directory / f"{ca}.pem"
    authority(ca).cert_pem.write_to_path(str(path))
    return path


@cache
def context_of(ca: str, name: str, unit: str | None = None) -> ssl.SSLContext:
    """Of a client that shows a certificate with this common name, and trusts the server's authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    authority().configure_trust(context)
    with tempfile.TemporaryDirectory() as directory:
        context.load_cert_chain(write_client(Path(directory), ca, name, unit))
    return context


def write_client(directory: Path, ca: str, name: str, unit: str | None = None) -> Path:
    """Write a certificate with this common name (and unit: CN=name,OU=unit for Java) and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    parts[:0] = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit)] if unit else []
    path = directory / "client.pem"
    path.write_bytes(pem_of(x509.Name(parts), ca, key) + key_pem(key))
    return path


def pem_of(subject: x509.Name, ca: str, key: ec.EllipticCurvePrivateKey) -> bytes:
    signer = authority(ca)
    issuer = x509.load_pem_x509_certificate(signer.cert_pem.bytes())
    signing = serialization.load_pem_private_key(signer.private_key_pem.bytes(), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(signing, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
