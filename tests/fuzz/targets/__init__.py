"""All targets, by name. A new decoder of peers' bytes adds a line."""

from __future__ import annotations

from typing import Final

from tests.fuzz.target import Target
from tests.fuzz.targets import (
    codecs,
    connections,
    quotas,
    records,
    replica_fetches,
    sasl,
    scanners,
    tls_names,
)

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for target in (
        codecs.STRICT,
        codecs.AS_A_BROKER,
        scanners.FRAMING,
        scanners.OFFSETS,
        scanners.STREAMS,
        scanners.FETCHES,
        records.REQUESTS,
        records.BATCHES,
        sasl.TOKENS,
        sasl.CLAIMS,
        quotas.RECORDS,
        quotas.ANSWERS,
        tls_names.NAMES,
        tls_names.CERTIFICATES,
        tls_names.PATTERNS,
        connections.CONNECTIONS,
        replica_fetches.REPLICA_FETCHES,
    )
}
