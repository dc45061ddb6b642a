"""A certificate's subject as Java writes it: X500Principal.getName(), which Kafka maps to a principal.

RFC 2253: last part first; nine attribute types by keyword, all others by number with hex values. Java decodes
values as UTF-8 whatever their string type, and writes hex digits in lower case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Keywords of RFC 2253 by object identifier of the attribute type, as in Java's AVAKeyword."""
STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""DER tags of the string types that are written as text: UTF8String, PrintableString, T61String, IA5String,
GeneralString, BMPString. Values of other types are written in hex.
"""
ESCAPED: Final = frozenset(',=+<>#;"\\')
SPACE: Final = " \r"
"""Characters that are escaped at the beginning and end of a value."""
VERSION_TAG: Final = 0xA0
FIELDS_BEFORE_SUBJECT: Final = 4
"""Number of fields of a TBSCertificate between version and subject: serial number, algorithm, issuer,
validity.
"""


def subject_of(certificate: bytes) -> str:
    """Return the subject of a DER certificate in the form of RFC 2253, such as `CN=alice,O=example`. Raises
    ValueError.
    """
    from cryptography import x509  # slow to import, and needed only for client certificates

    try:
        tbs = x509.load_der_x509_certificate(certificate).tbs_certificate_bytes
    except x509.InvalidVersion as error:  # no ValueError; OpenSSL accepts such a certificate
        raise ValueError(str(error)) from None
    fields = [field for field in _elements(_content(tbs)) if field[0] != VERSION_TAG]
    return name_of(fields[FIELDS_BEFORE_SUBJECT])


def name_of(name: bytes) -> str:
    """Return a DER Name in the form of RFC 2253. Raises ValueError."""
    parts = [
        "+".join(_attribute(attribute) for attribute in _elements(_content(part)))
        for part in _elements(_content(name))
    ]
    return ",".join(reversed(parts))


def _attribute(attribute: bytes) -> str:
    kind, value = _elements(_content(attribute))
    number = _number(_content(kind))
    keyword = KEYWORDS.get(number)
    if keyword is None or value[0] not in STRINGS:
        return f"{keyword or number}=#{value.hex()}"
    return f"{keyword}={_escaped(_content(value).decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    inner = "".join(_character(character) for character in text)
    head = len(inner) - len(inner.lstrip(SPACE))
    tail = len(inner.rstrip(SPACE))
    if head >= tail:
        return "".join(f"\\{space}" for space in inner)
    before, after = (("".join(f"\\{space}" for space in spaces)) for spaces in (inner[:head], inner[tail:]))
    return before + inner[head:tail] + after


def _character(character: str) -> str:
    if character == "\0":
        return "\\00"
    return f"\\{character}" if character in ESCAPED else character


# DER; cryptography has validated the whole certificate


def _elements(content: bytes) -> Iterator[bytes]:
    """Yield the DER elements in `content`, each with its tag and length. Raises ValueError."""
    position = 0
    while position < len(content):
        start, length = _head(content, position)
        behind = start + length
        if behind > len(content):
            raise ValueError("a certificate's name is cut short")
        yield content[position:behind]
        position = behind


def _content(element: bytes) -> bytes:
    start, length = _head(element)
    return element[start : start + length]


def _head(data: bytes, position: int = 0) -> tuple[int, int]:
    """Return the offset (bytes) of the content of the DER element at `position`, and the content's length.
    Raises ValueError.
    """
    if len(data) < position + 2:
        raise ValueError("a certificate's name is cut short")
    first, start = data[position + 1], position + 2
    if first < 0x80:
        return start, first
    behind = start + (first & 0x7F)
    return behind, int.from_bytes(data[start:behind], "big")


def _number(content: bytes) -> str:
    """Return an object identifier in dotted form."""
    arcs: list[int] = []
    arc = 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if byte < 0x80:
            arcs.append(arc)
            arc = 0
    if not arcs:
        raise ValueError("a certificate's name has a type without number")
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, [first, arcs[0] - 40 * first, *arcs[1:]]))
