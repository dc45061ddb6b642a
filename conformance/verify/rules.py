"""The registry of rules: name, reference, severity, explanation.

Checks name a rule by its member of `R`, so that a rule without an entry is a type error. The table in
docs/reference/conformance.md is generated from this registry.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


class Severity(StrEnum):
    """The weight of a finding."""

    ERROR = "error"
    """The bytes break the protocol: a peer may refuse or misread them."""
    WARNING = "warning"
    """Known peers accept the bytes, but the protocol asks for others."""
    NOTE = "note"
    """Something could not be checked, or is allowed but unusual."""


class R(StrEnum):
    """Names of the rules."""

    CAPTURE_GAP = "capture-gap"
    FRAME_LENGTH = "frame-length"
    FRAME_INCOMPLETE = "frame-incomplete"
    FRAME_TOO_LARGE = "frame-too-large"
    UNKNOWN_API = "unknown-api"
    UNKNOWN_VERSION = "unknown-version"
    VERSION_NOT_OFFERED = "version-not-offered"
    API_VERSIONS_FALLBACK = "api-versions-fallback"
    API_VERSIONS_HEADER = "api-versions-header"
    RESPONSE_WITHOUT_REQUEST = "response-without-request"
    RESPONSE_ORDER = "response-order"
    CORRELATION_ID = "correlation-id"
    CORRELATION_ID_REUSED = "correlation-id-reused"
    REQUEST_UNANSWERED = "request-unanswered"
    FIELD_LENGTH = "field-length"
    NULL_NOT_ALLOWED = "null-not-allowed"
    NULL_FORM = "null-form"
    VARINT = "varint"
    VARINT_NOT_MINIMAL = "varint-not-minimal"
    BOOL_VALUE = "bool-value"
    STRING_UTF8 = "string-utf8"
    TAG_ORDER = "tag-order"
    TAG_SIZE = "tag-size"
    TAG_DEFAULT = "tag-default"
    REQUEST_TRAILING_BYTES = "request-trailing-bytes"
    RESPONSE_TRAILING_BYTES = "response-trailing-bytes"
    ENCODING_DIFFERS = "encoding-differs"
    CONTENTS_UNCHECKED = "contents-unchecked"
    ERROR_CODE_UNKNOWN = "error-code-unknown"
    ERROR_CODE_OF_API = "error-code-of-api"
    ERROR_89_VERSION = "error-89-version"
    PRODUCE_ACKS = "produce-acks"
    CLIENT_SOFTWARE = "client-software"
    THROTTLE_NEGATIVE = "throttle-negative"
    THROTTLE_IGNORED = "throttle-ignored"
    SASL_ORDER = "sasl-order"
    SASL_UNCHECKED = "sasl-unchecked"
    BATCH_LENGTH = "batch-length"
    BATCH_MAGIC = "batch-magic"
    BATCH_CRC = "batch-crc"
    BATCH_COUNT = "batch-count"
    BATCH_OFFSETS = "batch-offsets"
    BATCH_TIMESTAMPS = "batch-timestamps"
    BATCH_COMPRESSION = "batch-compression"
    BATCH_UNOPENED = "batch-unopened"
    RECORD_FORMAT = "record-format"
    PRODUCE_ONE_BATCH = "produce-one-batch"
    PRODUCER_STATE = "producer-state"
    PRODUCER_EPOCH = "producer-epoch"
    PRODUCER_SEQUENCE = "producer-sequence"


class Rule(msgspec.Struct, frozen=True):
    """A rule that frames, messages, records or peers must keep."""

    name: R
    severity: Severity
    reference: str
    """The KIP, or the chapter of Kafka's protocol guide."""
    explanation: str
    """One line: a finding of this rule means that the opposite was seen."""


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_FRAMES = "protocol guide: Common Request and Response Structure"
_TYPES = "protocol guide: Protocol Primitive Types"
_ORDER = "protocol guide: Network"
_BATCH = "KIP-98, message format: Record Batch"

RULES: Final[dict[R, Rule]] = {
    name: Rule(name, severity, reference, explanation)
    for name, severity, reference, explanation in (
        (
            R.CAPTURE_GAP,
            _N,
            "",
            "A capture contains all bytes of a connection. After a gap, verification of the connection ends.",
        ),
        (
            R.FRAME_LENGTH,
            _E,
            _FRAMES,
            "A frame's length is not negative, and is large enough to hold the header.",
        ),
        (R.FRAME_INCOMPLETE, _W, _FRAMES, "The side that closes first has sent its last frame completely."),
        (
            R.FRAME_TOO_LARGE,
            _N,
            "socket.request.max.bytes",
            "A frame is at most 100 MiB long. Verification skips the contents of longer frames.",
        ),
        (
            R.UNKNOWN_API,
            _W,
            "protocol guide: Api Keys",
            "Weir's schemas (Kafka 3.9 and 4.4) contain the API.",
        ),
        (
            R.UNKNOWN_VERSION,
            _N,
            "protocol guide: Protocol Messages",
            "Weir's schemas contain the request's API version.",
        ),
        (
            R.VERSION_NOT_OFFERED,
            _E,
            "KIP-35",
            "A request's version is within the range in the server's ApiVersions response.",
        ),
        (
            R.API_VERSIONS_FALLBACK,
            _E,
            "KIP-511",
            "An ApiVersions response with error 35 (UNSUPPORTED_VERSION) is encoded as version 0.",
        ),
        (R.API_VERSIONS_HEADER, _E, "KIP-511", "The header of an ApiVersions response has no tagged fields."),
        (R.RESPONSE_WITHOUT_REQUEST, _E, _ORDER, "A response answers an earlier request."),
        (R.RESPONSE_ORDER, _E, _ORDER, "Responses come in the order of their requests."),
        (R.CORRELATION_ID, _E, _FRAMES, "A response has the correlation id of its request."),
        (R.CORRELATION_ID_REUSED, _W, _FRAMES, "Requests in flight have different correlation ids."),
        (
            R.REQUEST_UNANSWERED,
            _N,
            _ORDER,
            "The server answers each request instead of closing the connection.",
        ),
        (R.FIELD_LENGTH, _E, _TYPES, "A field ends within its message."),
        (R.NULL_NOT_ALLOWED, _E, _TYPES, "A field that is not nullable in this version is not null."),
        (
            R.NULL_FORM,
            _W,
            "KIP-893",
            "The length of a null is -1. A nullable struct begins with 1, or with -1 for null.",
        ),
        (R.VARINT, _E, "KIP-482", "A varint has at most five bytes and 31 bits."),
        (R.VARINT_NOT_MINIMAL, _W, "KIP-482", "A varint has as few bytes as possible."),
        (R.BOOL_VALUE, _W, _TYPES, "A boolean is 0 or 1."),
        (R.STRING_UTF8, _E, _TYPES, "A string is UTF-8 and has at most 32,767 bytes."),
        (R.TAG_ORDER, _E, "KIP-482", "Tags are in ascending order, and each tag occurs once."),
        (R.TAG_SIZE, _E, "KIP-482", "The declared size of a tagged field is the size of its value."),
        (R.TAG_DEFAULT, _N, "KIP-482", "Tagged fields with default values are left out."),
        (
            R.REQUEST_TRAILING_BYTES,
            _W,
            _FRAMES,
            "No bytes follow a request's last field. Brokers ignore such bytes.",
        ),
        (R.RESPONSE_TRAILING_BYTES, _E, _FRAMES, "No bytes follow a response's last field."),
        (
            R.ENCODING_DIFFERS,
            _E,
            "protocol guide: Protocol Messages",
            "Decoding a message and encoding it again gives the same bytes.",
        ),
        (
            R.CONTENTS_UNCHECKED,
            _N,
            "",
            "A message has at most 200,000 elements and tags. Values of larger messages are not checked.",
        ),
        (R.ERROR_CODE_UNKNOWN, _W, "protocol guide: Error Codes", "Kafka 4.4 defines the error code."),
        (
            R.ERROR_CODE_OF_API,
            _W,
            "protocol guide: Error Codes",
            "Brokers from 0.10 to 4.4 use the error code in some version of this API.",
        ),
        (
            R.ERROR_89_VERSION,
            _E,
            "KIP-599, KIP-714",
            "Only telemetry APIs, CreateTopics 6+, CreatePartitions 3+ and DeleteTopics 5+ use error 89.",
        ),
        (
            R.PRODUCE_ACKS,
            _E,
            "protocol guide: Produce API",
            "acks is -1, 0 or 1. Brokers answer other values with error 21 (INVALID_REQUIRED_ACKS).",
        ),
        (
            R.CLIENT_SOFTWARE,
            _E,
            "KIP-511",
            "Software names and versions match `[A-Za-z0-9]+([.-]+[A-Za-z0-9]+)*`.",
        ),
        (R.THROTTLE_NEGATIVE, _W, "KIP-124", "throttle_time_ms is not negative."),
        (
            R.THROTTLE_IGNORED,
            _W,
            "KIP-219",
            "After a response, the client sends nothing on that connection for throttle_time_ms.",
        ),
        (
            R.SASL_ORDER,
            _E,
            "KIP-152",
            "SaslAuthenticate follows SaslHandshake, and other requests follow the authentication.",
        ),
        (
            R.SASL_UNCHECKED,
            _N,
            "KIP-152",
            "Weir knows how many tokens the SASL mechanism uses. Otherwise, verification ends.",
        ),
        (
            R.BATCH_LENGTH,
            _E,
            _BATCH,
            "A batch's length is large enough for its header, and the batch ends within its field.",
        ),
        (
            R.BATCH_MAGIC,
            _E,
            "KIP-32, KIP-98, KIP-110",
            "The API's version permits the batch's magic and codec. zstd needs Produce 7 or Fetch 10.",
        ),
        (R.BATCH_CRC, _E, _BATCH, "The checksum (CRC-32C; CRC-32 for magic 0 and 1) matches the bytes."),
        (R.BATCH_COUNT, _E, _BATCH, "The record count in the header is correct."),
        (
            R.BATCH_OFFSETS,
            _E,
            _BATCH,
            "Offsets ascend, and the header gives the last offset. In Produce, offsets count up from 0.",
        ),
        (R.BATCH_TIMESTAMPS, _W, _BATCH, "The header's greatest timestamp is the timestamp of a record."),
        (R.BATCH_COMPRESSION, _E, _BATCH, "The batch's codec exists and can decompress the records."),
        (
            R.BATCH_UNOPENED,
            _N,
            "",
            "Batches unpack to at most 64 MiB. Codecs other than gzip need `kafka-weir[conformance]`.",
        ),
        (R.RECORD_FORMAT, _E, "message format: Record", "The lengths in a record match its bytes."),
        (
            R.PRODUCE_ONE_BATCH,
            _E,
            "KIP-98",
            "From version 3 on, Produce contains one batch of magic 2 for each partition.",
        ),
        (
            R.PRODUCER_STATE,
            _E,
            "KIP-98",
            "A producer id comes with an epoch and sequence number. A transactional batch has a producer id.",
        ),
        (R.PRODUCER_EPOCH, _W, "KIP-98, KIP-360", "The epoch of a producer id does not decrease."),
        (
            R.PRODUCER_SEQUENCE,
            _W,
            "KIP-98",
            "In a partition, a producer's sequence numbers have no gaps. Identical batches may repeat.",
        ),
    )
}


def check_names(names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set. Raises ValueError, with all names that are no rule, if there is one."""
    found = frozenset(names)
    if wrong := sorted(found - {*R}):
        raise ValueError(f"no rule {', '.join(wrong)}; rules are {', '.join(R)}")
    return found


def table() -> str:
    """Return the registry as a Markdown table, by severity."""
    lines = ["| rule | explanation |", "| --- | --- |"]
    for severity in Severity:
        lines.append(f"| | **{severity.capitalize()}s:** |")
        lines += [
            f"| `{rule.name}` | {rule.explanation} |" for rule in RULES.values() if rule.severity is severity
        ]
    return "\n".join(lines)
