"""All targets, by name. A new decoder of peers' bytes adds a line."""

from __future__ import annotations

from typing import Final

from tests.fuzz.target import Target
from tests.fuzz.targets import (
    capture_files,
    captures,
    codecs,
    connections,
    proxy_headers,
    quotas,
    records,
    redaction,
    replica_fetches,
    sasl,
    scanners,
    tls_names,
)

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for target in (
        captures.CAPTURES,
        captures.RECORDS,
        captures.SCANNERS,
        captures.EVENTS,
        capture_files.FILES,
        capture_files.BLOCKS,
        capture_files.SEGMENTS,
        capture_files.STREAMS,
        capture_files.PCAPS,
        capture_files.PACKETS,
        redaction.REDACTION,
        redaction.TOKENS,
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
        proxy_headers.HEADERS,
        tls_names.NAMES,
        tls_names.CERTIFICATES,
        tls_names.PATTERNS,
        connections.CONNECTIONS,
        replica_fetches.REPLICA_FETCHES,
    )
}
