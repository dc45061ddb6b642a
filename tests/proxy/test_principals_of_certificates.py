"""Whom a certificate names: the subject as Java writes it, then Kafka's mapping rules.

Expected values are those of RFC 2253, of Kafka's documentation and its SslPrincipalMapperTest; and, in the
oracle's lane, whatever Java and Kafka say themselves.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.java.names import ask_java
from weir.proxy.config.settings import ConfigError
from weir.proxy.net.tls.distinguished_name import KEYWORDS, name_of, subject_of
from weir.proxy.net.tls.principal_mapping import PrincipalMapping, UnmappedError

KAFKA: Final = "3.9.1"
NAMED: Final = {
    "CN": NameOID.COMMON_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "L": NameOID.LOCALITY_NAME,
    "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "C": NameOID.COUNTRY_NAME,
    "DC": NameOID.DOMAIN_COMPONENT,
    "UID": NameOID.USER_ID,
    "EMAIL": NameOID.EMAIL_ADDRESS,
}


def name(*parts: tuple[tuple[str, str], ...]) -> x509.Name:
    return x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(NAMED[kind], value) for kind, value in part])
            for part in parts
        ]
    )


def element(tag: int, content: bytes) -> bytes:
    """DER, of less than 128 bytes."""
    return bytes([tag, len(content)]) + content


def raw_name(number: bytes, tag: int, value: bytes) -> bytes:
    """A name of one attribute, whatever its type, with a value of whatever type."""
    attribute = element(0x30, element(0x06, number) + element(tag, value))
    return element(0x30, element(0x31, attribute))


CN: Final = bytes.fromhex("550403")
SUBJECTS: Final = [
    # RFC 2253, section 5
    (name((("O", "Isode Limited"),), (("CN", "Steve Kille"),)), "CN=Steve Kille,O=Isode Limited"),
    (
        name((("C", "US"),), (("O", "Widget Inc."),), (("OU", "Sales"), ("CN", "J. Smith"))),
        "OU=Sales+CN=J. Smith,O=Widget Inc.,C=US",
    ),
    (name((("O", "Sue, Grabbit and Runn"),), (("CN", "L. Eagle"),)), "CN=L. Eagle,O=Sue\\, Grabbit and Runn"),
    (name((("CN", "Lučić"),)), "CN=Lučić"),
    # Kafka's documentation, security: the default name
    (
        name(
            *((("C", "Unknown"[:2]),), (("ST", "Unknown"),), (("L", "Unknown"),)),
            *((("O", "Unknown"),), (("OU", "Unknown"),), (("CN", "writeuser"),)),
        ),
        "CN=writeuser,OU=Unknown,O=Unknown,L=Unknown,ST=Unknown,C=Un",
    ),
    # by hand from RFC 2253: escapes, spaces at the ends, a type without keyword (hex of the whole value)
    (name((("CN", ' #a"+,;<=>\\ '),)), 'CN=\\ \\#a\\"\\+\\,\\;\\<\\=\\>\\\\\\ '),
    (name((("EMAIL", "a@b"),)), "1.2.840.113549.1.9.1=#1603614062"),
    (name((("DC", "com"),), (("DC", "example"),), (("UID", "u1"),)), "UID=u1,DC=example,DC=com"),
]
RAW: Final = [
    raw_name(CN, 0x0C, b""),
    raw_name(CN, 0x0C, b"  "),
    raw_name(CN, 0x0C, b"a\0b"),
    raw_name(CN, 0x0C, b"\xff\xfe"),
    raw_name(CN, 0x0C, b"\r a \n"),
    raw_name(CN, 0x1E, "Ab".encode("utf-16-be")),
    raw_name(CN, 0x14, "Müller".encode("latin-1")),
    raw_name(CN, 0x16, b"ia5"),
    raw_name(CN, 0x1B, b"general"),
    raw_name(CN, 0x1C, "u".encode("utf-32-be")),
    raw_name(CN, 0x12, b"123"),
    raw_name(CN, 0x02, b"\x07"),
    raw_name(bytes.fromhex("550405"), 0x13, b"serial"),
    raw_name(bytes.fromhex("55040C"), 0x0C, b"title"),
    raw_name(bytes.fromhex("0992268993f22c640101"), 0x0C, b"uid"),
    raw_name(bytes.fromhex("883703"), 0x0C, b"2.999.3"),
    element(0x30, b""),
]


@pytest.mark.parametrize(("subject", "written"), SUBJECTS, ids=[written for _, written in SUBJECTS])
def test_certificate_subjects_are_printed_as_in_rfc_2253(subject: x509.Name, written: str) -> None:
    assert name_of(subject.public_bytes()) == written


def certificate_of_alice() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name((("CN", "alice"),)))
        .issuer_name(name((("CN", "issuer"),)))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.DER)


def test_the_subject_of_a_certificate_is_found() -> None:
    assert subject_of(certificate_of_alice()) == "CN=alice"


def test_a_certificate_of_a_version_that_x509_lacks_is_an_error_like_other_unreadable_ones() -> None:
    third, unknown = bytes.fromhex("a003020102"), bytes.fromhex("a003020107")
    certificate = certificate_of_alice()
    assert third in certificate
    with pytest.raises(ValueError, match="version"):
        subject_of(certificate.replace(third, unknown, 1))


class CountedBytes(bytes):
    """Bytes that count those copied by slices, and by slices of slices."""

    copied = 0

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        if isinstance(part, int):
            return part
        CountedBytes.copied += len(part)
        return CountedBytes(part)


def test_reading_a_certificate_name_of_many_parts_copies_its_bytes_a_few_times_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CountedBytes, "copied", 0)
    part = element(0x31, element(0x30, bytes.fromhex("0603550403") + element(0x0C, b"a")))
    parts = part * 2000
    name_of(CountedBytes(b"\x30\x84" + len(parts).to_bytes(4) + parts))
    assert CountedBytes.copied < 10 * len(parts)


@given(st.binary(max_size=60))
def test_malformed_certificate_names_are_errors(data: bytes) -> None:
    with suppress(ValueError):
        name_of(data)


@pytest.mark.oracle
def test_certificate_subjects_are_printed_as_by_java() -> None:
    numbers = [ObjectIdentifier(number) for number in KEYWORDS]
    every = x509.Name([x509.NameAttribute(number, "xx") for number in numbers])
    names = [*(subject.public_bytes() for subject, _ in SUBJECTS), *RAW, every.public_bytes()]
    said = ask_java(KAFKA, names=names).subjects
    assert [name_of(der) for der in names] == said


# Rules

RULES: Final = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, "
    "DEFAULT"
)
NAMES: Final = [
    (RULES, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
    (RULES, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
    (RULES, "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
    (RULES, "cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
    (RULES, "OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    (
        "RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT",
        "CN=Tkac\\, Adam,OU=ITZ,DC=geodis,DC=cz",
        "Tkac\\, Adam",
    ),
]
"""Of SslPrincipalMapperTest (KIP-371, KAFKA-9702)."""
VALID: Final = [
    "DEFAULT",
    " ,, DEFAULT ,",
    "RULE://",
    "  RULE:   /     / ,  DEFAULT  ",
    "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
    "RULE:\\/\\\\\\(\\)\\n\\t/\\/\\//",
    "RULE:,RULE:,/,RULE:,\\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,RULE:, DEFAULT, /DEFAULT/,DEFAULT",
]
INVALID: Final = [
    *("default", "DEFAUL", "DEFAULT/L", "DEFAULT/U"),
    "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
    "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
    *("", " , ,"),  # Kafka starts, and then maps nobody
]
FATAL_LATER: Final = ["RULE:(.*)/$/", "RULE:.*/$1/", "RULE:(.*)/${x}/", "RULE:(.*)/$1$4$5/", "RULE:(.*)/a\\"]
"""Kafka finds out when the first client comes."""
UNTRANSLATED: Final = [
    *(r"RULE:\p{L}+/x/", r"RULE:[a-z&&[^b]]/x/", r"RULE:(?s).*/x/", r"RULE:\R/x/", r"RULE:a{,3}/x/"),
    *(r"RULE:(?P<a>.)/x/", r"RULE:[]a]/x/", r"RULE:\0101/x/", r"RULE:(/x/", r"RULE:\v/x/", r"RULE:[a/x/"),
]


@pytest.mark.parametrize(("rules", "subject", "expected"), NAMES)
def test_the_first_matching_rule_names_the_principal(rules: str, subject: str, expected: str) -> None:
    assert PrincipalMapping.parse(rules).name(subject) == expected


@pytest.mark.parametrize("rules", VALID)
def test_principal_mapping_rules_that_kafka_accepts_are_accepted(rules: str) -> None:
    PrincipalMapping.parse(rules)


@pytest.mark.parametrize("rules", [*INVALID, *FATAL_LATER, *UNTRANSLATED])
def test_invalid_principal_mapping_rules_stop_the_start(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"^ssl_principal_mapping_rules[^\n]*$"):
        PrincipalMapping.parse(rules)


def test_a_subject_without_a_matching_rule_is_an_error() -> None:
    with pytest.raises(UnmappedError, match="CN=b"):
        PrincipalMapping.parse("RULE:^CN=a$/a/").name("CN=b")


CASES: Final = [
    ("RULE:.*/x/", "abc"),
    ("RULE:a|ab/x/", "ab"),
    ("RULE:(a)(b)?/[$2$1]/", "a"),
    ("RULE:(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)/$11$1$10/", "abcdefghijk"),
    ("RULE:(a)b/$11 $4 $01/", "ab"),
    ("RULE:(a)b/\\$1\\\\$0/", "ab"),
    ("RULE:(?<who>[^,]+),.*/${who}/U", "cn=é,x"),
    ("RULE:CN=(\\w+).*/$1/", "CN=é"),
    ("RULE:.*/x/", "a\u2028b"),
    ("RULE:a$/x/", "a\n"),
    ("RULE:(?i)cn=(.*)/$1/", "CN=K\u212a"),
    ("RULE:(?i)K/x/", "\u212a"),
    ("RULE:\\Qa.b\\E.*/x/", "a.bc"),
    ("RULE:[a-z&|~]+/x/", "a&b"),
    ("RULE:a*+b/x/", "aab"),
    ("RULE:(?>a|ab)c/x/", "abc"),
    ("RULE:(.*)/$1/L", "İSTANBUL ΣΑΣ"),
    ("RULE:(.*)/$1/U", "straße ŉ"),
    ("RULE:x*/-/", "abxc"),
    ("RULE:(a)\\1/x/", "aa"),
    ("RULE:a}]/x/", "a}]"),
]
"""Where Java and Python could differ."""


@pytest.mark.oracle
def test_mapped_principals_are_those_of_kafka() -> None:
    asked = [*((rules, subject) for rules, subject, _ in NAMES), *CASES, *fuzzed()]
    said = ask_java(KAFKA, mappings=asked).names
    ours = [_ours(rules, subject) for rules, subject in asked]
    assert [case for case in zip(asked, ours, said, strict=True) if case[1] != case[2]] == []


@pytest.mark.oracle
def test_kafka_fails_on_the_principal_mapping_rules_that_weir_refuses() -> None:
    asked = [(rules, "CN=duke") for rules in (*INVALID, *FATAL_LATER)]
    assert set(ask_java(KAFKA, mappings=asked).names) == {None}


def _ours(rules: str, subject: str) -> str | None:
    try:
        return PrincipalMapping.parse(rules).name(subject)
    except (ConfigError, UnmappedError):
        return None


def fuzzed() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    parts = st.lists(
        st.sampled_from(
            ["CN=", "(.*)", "([^,]*)", ",", "OU", "(a|b)?", ".", "\\w+", "$", "^", "\\.", "[a-c]"]
        ),
        min_size=1,
        max_size=5,
    )
    replaced = st.lists(st.sampled_from(["$1", "$2", "$10", "x", "\\$", "@", "$0", "\\/"]), max_size=4)
    subjects = st.sampled_from(["CN=abc", "CN=abc,OU=x", "abc", "a", "OU=.,CN=b\\,c"])

    @settings(max_examples=75)
    @given(parts, replaced, st.sampled_from(["", "L", "U"]), subjects)
    def collect(pattern: list[str], replacement: list[str], case: str, subject: str) -> None:
        found.append((f"RULE:{''.join(pattern)}/{''.join(replacement)}/{case}", subject))

    collect()
    return found
