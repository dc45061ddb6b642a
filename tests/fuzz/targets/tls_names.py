"""Names in certificates. Documented errors: ValueError of DER and patterns, UnmappedError of rules."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import Name, load_pem_x509_certificate
from cryptography.x509.name import NameAttribute, RelativeDistinguishedName
from cryptography.x509.oid import NameOID

from tests.fuzz.growth import fillers
from tests.fuzz.target import Grow, Target
from tests.proxy.certificates import authority
from weir.proxy.net.tls.distinguished_name import name_of, subject_of
from weir.proxy.net.tls.java_pattern import translate
from weir.proxy.net.tls.principal_mapping import PrincipalMapping, UnmappedError

MAPPING: Final = PrincipalMapping.parse(
    "RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L,RULE:^.*[Cc]=([a-z]*).*$/$1/,DEFAULT"
)
ALICE: Final = Name(
    [
        RelativeDistinguishedName([NameAttribute(NameOID.COMMON_NAME, "alice, B")]),
        RelativeDistinguishedName(
            [NameAttribute(NameOID.COUNTRY_NAME, "CH"), NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.c")]
        ),
    ]
)


def run(data: bytes) -> None:
    """Write a DER Name as Java does, and map it to a principal."""
    try:
        name = name_of(data)
    except ValueError:
        return
    _map(name)


def run_certificates(data: bytes) -> None:
    try:
        name = subject_of(data)
    except ValueError:
        return
    _map(name)


def run_patterns(data: bytes) -> None:
    try:
        pattern = translate(data.decode("utf-8", "replace"))
    except ValueError:
        return
    pattern.fullmatch("CN=a")


def _map(name: str) -> None:
    with suppress(UnmappedError):
        MAPPING.name(name)


def seeds() -> Sequence[bytes]:
    return [ALICE.public_bytes(), Name([]).public_bytes()]


@cache
def certificate_seeds() -> Sequence[bytes]:
    return [load_pem_x509_certificate(authority().cert_pem.bytes()).public_bytes(Encoding.DER)]


def pattern_seeds() -> Sequence[bytes]:
    return [rb"^CN=(.*?),OU=(?<unit>[^,&&a]*)$", rb"(?i)\Qa.b\E[\w~|-]{1,3}\Z|\z.", rb"(?:a|b)*+\1\x41\u0041"]


def growing() -> dict[str, Grow]:
    return dict(fillers()) | {"parts": many_parts, "long": lambda count: many_values(b"a" * count)}


def many_parts(count: int) -> bytes:
    return der(0x30, der(0x31, der(0x30, bytes.fromhex("0603550403 0c0161"))) * count)


def many_values(value: bytes) -> bytes:
    return der(0x30, der(0x31, der(0x30, bytes.fromhex("0603550403") + der(0x0C, value))))


def der(tag: int, content: bytes) -> bytes:
    return bytes([tag, 0x84]) + len(content).to_bytes(4) + content


NAMES: Final = Target("tls-names", run, seeds, growing)
CERTIFICATES: Final = Target("certificates", run_certificates, certificate_seeds)
PATTERNS: Final = Target("java-patterns", run_patterns, pattern_seeds)
