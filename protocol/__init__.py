"""Kafka's wire format: schemas, codec, framing, error codes. Bytes in, values out.

No sockets, no clock, no quotas; imports no other package of Weir. Where to look:

- `api`: APIs, versions and header versions; `error_codes`: Kafka's error codes.
- `messages`: every message as a value, the same for all versions; `codec`: values to bytes and back.
- `framing`: frames and their headers; `field_offsets`, `field_scanner`, `stream_scanner`: single fields
  without decoding a message; `version_differences`: the difference between versions on the wire.
- `least_fetch`, `records_remover`: make a fetch over its quota ask for little, and remove its records.
- `record_batches`, `produced_records`, `unpacked_sizes`, `topic_bytes`, `topic_names`: records and topics
  in requests and responses; `sasl`: names in SASL tokens.
- `schema`: the schemas; `errors`: exceptions for bytes that are not Kafka's.

A new Kafka release is imported by `python -m tools.import_schemas`, nothing is typed in.

- Schemas are merged from two releases, and the importer proves the merge against both: 3.9 has all old
  versions, 4.2 the newest. Where 3.9 calls a version unstable and 4.2 has it, 4.2 counts.
- Message types are made from the schemas at run time, with a generated stub for mypy: one type per message
  for all versions, without 40,000 lines of generated code.

The most used names are exported here; messages are imported from `protocol.messages`.
"""

from __future__ import annotations

from protocol.api import ApiKey, is_flexible, request_header_version, response_header_version, versions
from protocol.codec import Codec, codec, request_type, response_type
from protocol.error_codes import ErrorCode
from protocol.errors import EncodeError, ProtocolError, UnknownVersionError
from protocol.values import Message
from protocol.versions import VersionRange

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
