"""Kafka's wire format: schemas, codec, framing, error codes.

This package uses no sockets and no clock, and imports no other package of Weir. Its modules:

- `api`: APIs, versions and header versions; `error_codes`: Kafka's error codes.
- `messages`: every message as a value, the same for all versions; `codec`: values to bytes and back.
- `checksums`: CRC-32C.
- `framing`: frames and their headers; `version_differences`: differences between versions on the wire;
  `backing_off`: versions in which clients wait for throttle times by themselves;
  `sasl`: names of clients in SASL tokens.
- `schema`, `versions`: the schemas; `values`, `decoding`, `encoding`, `primitives`: parts of the codec;
  `pieces`: decoding and encoding of large messages, with pauses; `errors`: exceptions for malformed bytes.
- `scanning/`: single fields without decoding a message. `field_offsets`, `field_scanner`, `pausing_scanner`
  locate fields; `least_fetch` and `records_remover` reduce a fetch over its quota and remove its records;
  `endpoint_mask` and `array_mask` hide addresses; `record_batches`, `produced_records`, `unpacked_sizes`,
  `topic_bytes`, `topic_names`, `fetched_partitions` find records, topics and partitions.

To support a new Kafka release, run `python -m tools.import_schemas`, which writes the schema files.

- Schemas are merged from two releases: 3.9 has all old versions, 4.4 the newest versions. If 3.9 calls a
  version unstable that 4.4 has, the schema of 4.4 is used. The importer checks the merged schemas against
  both releases.
- Message types are made from the schemas at run time, with a generated stub for mypy: one type per message
  for all versions, without 40,000 lines of generated code.

The most used names are exported here; messages are imported from `protocol.messages`.
"""

from __future__ import annotations

from weir.protocol.api import ApiKey, is_flexible, request_header_version, response_header_version, versions
from weir.protocol.codec import Codec, codec, request_type, response_type
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import EncodeError, ProtocolError, UnknownVersionError
from weir.protocol.values import Message
from weir.protocol.versions import VersionRange

__all__ = [
    "ApiKey",
    "Codec",
    "EncodeError",
    "ErrorCode",
    "Message",
    "ProtocolError",
    "UnknownVersionError",
    "VersionRange",
    "codec",
    "is_flexible",
    "request_header_version",
    "request_type",
    "response_header_version",
    "response_type",
    "versions",
]
