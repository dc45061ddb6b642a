"""Requests of APIs and versions that the target did not offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.conformance.probe.case import Case, CaseOutcome
from weir.conformance.probe.link import CLIENT_ID
from weir.conformance.probe.malformed.edits import framed
from weir.protocol import schema
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.versions import LAST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from weir.protocol.versions import VersionRange

_CORRELATION_ID: Final = 77
_UNKNOWN_APIS: Final = (-1, 999, 0x7FFF)
_UNSUPPORTED: Final = frozenset({int(ErrorCode.UNSUPPORTED_VERSION)})
_REFUSED: Final = frozenset({CaseOutcome.CLOSED, CaseOutcome.ERROR})


def version_cases(offered: Mapping[int, VersionRange]) -> Iterator[Case]:
    """Yield, for each API that a target offers, a version below its range and one above, and APIs that Kafka
    lacks. `offered`: API key → versions, from the target's ApiVersions response.
    """
    for api_key, versions in offered.items():
        if (found := schema.api(api_key)) is None:
            continue
        # A flexible API stays flexible (KIP-482), also in versions of the target that the schemas lack.
        flexible = min(versions.max, found.request.versions.max) in found.request.flexible
        for where, version in (("below", versions.min - 1), ("above", versions.max + 1)):
            if not -LAST - 1 <= version <= LAST:  # the field is an int16
                continue
            data = _frame(api_key, version, flexible=flexible)
            # A target that answers does so in the request's version, whose layout may be another one.
            known = version if version in found.request.versions else versions.max
            yield _case(f"{found.name}/version-{where}", api_key, known, data)
    for api_key in _UNKNOWN_APIS:
        if api_key not in offered:
            name = f"API {api_key}/unknown-api"
            yield Case(
                name,
                api_key,
                0,
                _frame(api_key, 0, flexible=False),
                frozenset({CaseOutcome.CLOSED}),
                reference="protocol guide: Api Keys",
            )


def _case(name: str, api_key: int, version: int, data: bytes) -> Case:
    """Return a case. An ApiVersions response with error 35 has the form of version 0, and a target must send
    it for every version that it lacks; a version below 0 cannot occur there.
    """
    is_negotiation = api_key == ApiKey.API_VERSIONS
    demanded = is_negotiation and name.endswith("above")
    return Case(
        name,
        api_key,
        0 if is_negotiation else version,
        data,
        frozenset({CaseOutcome.ERROR}) if demanded else _REFUSED,
        errors=_UNSUPPORTED,
        reference="KIP-511" if is_negotiation else "KIP-35",
    )


def _frame(api_key: int, version: int, *, flexible: bool) -> bytes:
    """Return a request without a body."""
    client_id = CLIENT_ID.encode()
    numbers = api_key.to_bytes(2, signed=True) + version.to_bytes(2, signed=True)
    head = numbers + _CORRELATION_ID.to_bytes(4) + len(client_id).to_bytes(2) + client_id
    return framed(head + b"\x00" * flexible)
