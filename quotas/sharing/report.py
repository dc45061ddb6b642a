"""Report: what one Weir tells the others about the usage of its clients.

Totals are cumulative, so a lost report is made good by the next one, and a report that arrives twice changes
nothing. A receiver that knows no former total of a limiter counts `recent` instead.
"""
# mypyc: skip, because no request calls it.

from __future__ import annotations

import hmac
import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.quotas.handover import QuotasName

if TYPE_CHECKING:
    from weir.quotas.table.entities import Tags

USAGES_MAX: Final = 10_000
"""Maximum number of limiters in one report: 240 KB, below the brokers' limit for a record."""
NAME_BYTES_MAX: Final = 255
UNITS_MAX: Final = 1e18
"""Largest total that is believed; 100 GB/s reach it after four months."""
_HEAD: Final = struct.Struct(">3sB")
_NUMBERS: Final = struct.Struct(">QQI")
_USAGE: Final = struct.Struct(">Qdd")
_MAGIC: Final = b"WU\x01"
"""First bytes of each report; the last one is the version of the format."""
_SIGNED: Final = b"WU\x02"
"""First bytes of a report that is followed by the HMAC of all bytes before."""
_HASH: Final = "sha256"
_MAC_BYTES: Final = 32


class ReportError(Exception):
    """Error: bytes are no report, or one with numbers that cannot be true."""


class UnsignedReportError(ReportError):
    """Error: the report is not signed with the key of this Weir."""


class ReportKey:
    """Key of all Weirs of a cluster, by which they sign their reports. `repr` does not show it."""

    __slots__ = ("_secret",)

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def mac(self, data: bytes) -> bytes:
        """Return the HMAC of these bytes (RFC 2104, SHA-256)."""
        return hmac.digest(self._secret, data, _HASH)


class LimiterUsage(NamedTuple):
    """Usage of one limiter by the clients of one Weir."""

    limiter: int
    """Number of the limiter, equal at all Weirs (`limiter_number`)."""
    total: float
    """Units since the start of the Weir's incarnation. Units of request time are µs."""
    recent: float
    """Units in about the last ten seconds, at most `total`."""


class UsageReport(NamedTuple):
    """Usage of the clients of one Weir. A report without usage tells that the Weir lives."""

    weir: str
    """Name of the Weir, which stays the same when it restarts."""
    incarnation: int
    """Number of this process: another one after each restart."""
    sequence: int
    """Number of the report in its incarnation, counted from 0."""
    usages: tuple[LimiterUsage, ...] = ()
    """The limiters whose usage has changed since the former report."""


def limiter_number(quotas: QuotasName, tags: Tags) -> int:
    """Return the number (64 bits) of the limiter with these tags at all Weirs of the cluster."""
    node_id, name, is_shadow = quotas
    # Weirs that know no groups have other limiters under the same numbers as before.
    texts = [str(node_id), name, str(is_shadow), *tags[:-1], *([tags.group] if tags.group else [])]
    digest = blake2b(digest_size=8)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(struct.pack(">I", len(data)))
        digest.update(data)
    return int.from_bytes(digest.digest(), "big")


def encode(report: UsageReport, key: ReportKey | None = None) -> bytes:
    """Return the report as bytes, which `decode` reads, signed with the key."""
    name = report.weir.encode("utf-8", "replace")[:NAME_BYTES_MAX]
    head = _HEAD.pack(_SIGNED if key else _MAGIC, len(name)) + name
    numbers = _NUMBERS.pack(report.incarnation, report.sequence, len(report.usages))
    data = head + numbers + b"".join(_USAGE.pack(*usage) for usage in report.usages)
    return data + key.mac(data) if key else data


def decode(data: bytes, key: ReportKey | None = None) -> UsageReport:
    """Return the report in these bytes. Raises ReportError if they have another format, or totals that are
    negative, not finite or above `UNITS_MAX`. With a key, raises UnsignedReportError if the report is not
    signed with it.
    """
    is_signed = data.startswith(_SIGNED)
    if key and not (is_signed and hmac.compare_digest(key.mac(data[:-_MAC_BYTES]), data[-_MAC_BYTES:])):
        raise UnsignedReportError("not signed with the key of this Weir")
    if is_signed:
        data = data[:-_MAC_BYTES]
    try:
        magic, length = _HEAD.unpack_from(data)
        if magic not in (_MAGIC, _SIGNED):
            raise ReportError("no report of a Weir, or one of another version")
        at = _HEAD.size + length
        name = data[_HEAD.size : at].decode("utf-8", "replace")
        incarnation, sequence, count = _NUMBERS.unpack_from(data, at)
        at += _NUMBERS.size
        if count > USAGES_MAX or len(data) != at + count * _USAGE.size:
            raise ReportError(f"{len(data)} bytes for {count} limiters")
        usages = tuple(map(LimiterUsage._make, _USAGE.iter_unpack(data[at:])))
    except struct.error:
        raise ReportError(f"cut off after {len(data)} bytes") from None
    for usage in usages:
        if not 0 <= usage.recent <= usage.total <= UNITS_MAX:  # nor one that is no number
            raise ReportError(f"usage of {usage.recent} recent units of {usage.total}")
    return UsageReport(name, incarnation, sequence, usages)
