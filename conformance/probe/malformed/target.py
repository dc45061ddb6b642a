"""All malformed requests for a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.conformance.probe.link import frame
from weir.conformance.probe.malformed.sampling import cases
from weir.conformance.probe.malformed.versions import version_cases
from weir.conformance.probe.requests import HARMFUL, well_formed
from weir.protocol.api import versions as known_versions
from weir.protocol.codec import request_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from weir.conformance.probe.case import Case
    from weir.conformance.probe.requests import Names
    from weir.protocol.versions import VersionRange

BASE: Final = "maximal"
"""Shape of the well-formed requests that are changed. It has every field, and elements in its arrays."""
_CORRELATION_ID: Final = 0x6D61_6C66


def base_name(case: Case) -> str:
    """Return the name of the well-formed case that a malformed one was made from."""
    api, version = case.name.split("/")[:2]
    return f"{api}/{version}/{BASE}"


def malformed(offered: Mapping[int, VersionRange], names: Names, seed: int) -> Iterator[Case]:
    """Yield the malformed requests of every API and version that a target offers and the schemas have, then
    those of other APIs and versions. `offered`: API key → versions in the target's ApiVersions response.
    """
    for base in well_formed(offered, names, seed, randoms=0):
        if base.name.endswith(f"/{BASE}"):
            yield from cases(base.data, seed, usual=base.permitted)
    for api_key in sorted(HARMFUL.keys() & offered.keys()):
        known = known_versions(api_key)
        for version in known.intersect(offered[api_key]) if known is not None else ():
            data = frame(request_type(api_key)(), api_key, version, _CORRELATION_ID)
            yield from cases(data, seed, harmless=False)
    yield from version_cases(offered)
