"""Findings in clients and brokers that docs/background/conformance-findings.md explains."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from tests.integration.recorded import Found, Key
from tests.tools.compiled_only import ROOT
from weir.conformance.events import Side
from weir.conformance.verify import R, Severity

ANY: Final = "any"
FLEXIBLE: Final = ("2.8.2", "3.9.1", "4.2.0", "4.4.0")
"""Releases that have Metadata 9."""
PAGE: Final = ROOT / "docs" / "background" / "conformance-findings.md"


class Known(NamedTuple):
    client: str
    rule: R
    api: str
    """Kafka's name of the API, or ANY: the next request of any API, which depends on timing."""
    versions: range
    brokers: Collection[str]
    """Releases at which it is seen each time; none if it depends on timing."""
    path: str = ""

    def explains(self, client: str, key: Key) -> bool:
        rule, api, version, path = key
        return (self.client, self.rule, self.path) == (client, rule, path) and (
            self.api == ANY or (self.api == api and version in self.versions)
        )


KNOWN: Final = (
    Known("librdkafka", R.REQUEST_TRAILING_BYTES, "Metadata", range(9, 14), FLEXIBLE),
    Known("librdkafka", R.THROTTLE_IGNORED, ANY, range(0), ()),
    Known("kafka-python", R.THROTTLE_IGNORED, ANY, range(0), ()),
    Known("aiokafka", R.THROTTLE_IGNORED, ANY, range(0), ()),
)
"""Brokers have no row: no finding of theirs is known."""


def complaints(
    client: str, front: Mapping[Side, Mapping[Key, Found]], back: Mapping[Side, Mapping[Key, Found]]
) -> list[str]:
    """Return a line for each finding of Weir's own, and for each of its peers that is not known.

    `front` are the findings between clients and Weir, `back` those between Weir and brokers. Weir's own are
    those of the server in front and of the client behind. Weir passes bytes on, with their defects: a finding
    that the original peer's side has, too, is that peer's.
    """
    own = [
        *_of("Weir answers", front[Side.SERVER], but=back[Side.SERVER]),
        *_of("Weir asks", back[Side.CLIENT], but=front[Side.CLIENT]),
    ]
    explained = [key for key in front[Side.CLIENT] if any(known.explains(client, key) for known in KNOWN)]
    peers = [
        *_of(f"{client} asks, unknown", front[Side.CLIENT], but=explained),
        *_of("a broker answers, unknown", back[Side.SERVER], but=()),
    ]
    return own + peers


def missing(client: str, broker: str, front: Mapping[Side, Mapping[Key, Found]]) -> list[Known]:
    """Return the known findings that should have been seen at a broker, and were not."""
    return [
        known
        for known in KNOWN
        if known.client == client
        and broker in known.brokers
        and not any(known.explains(client, key) for key in front[Side.CLIENT])
    ]


def _of(who: str, found: Mapping[Key, Found], but: Collection[Key]) -> list[str]:
    return [
        f"{who}: {one.first.severity} {' '.join(map(str, key))}, {one.times} times: {one.first.message} "
        f"expected {one.first.expected}, found {one.first.found}; {one.first.context}"
        for key, one in found.items()
        if key not in but and one.first.severity is not Severity.NOTE
    ]
