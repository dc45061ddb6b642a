"""The fields of Kafka's messages that contain credentials, and their replacement by filler of the same
length.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from weir.conformance.capture.frame_edits import fill
from weir.conformance.capture.public_configs import is_sensitive
from weir.protocol import ApiKey, ProtocolError, codec, is_flexible, versions
from weir.protocol.api import response_header_version
from weir.protocol.errors import UnencodableError
from weir.protocol.framing import (
    CLIENT_ID_OFFSET,
    INCOMPLETE,
    REQUEST_HEAD,
    REQUEST_HEAD_BYTES,
    RESPONSE_HEAD_BYTES,
    request_body,
    response_body,
)
from weir.protocol.messages import SaslHandshakeRequest
from weir.protocol.scanning.field_spans import field_spans
from weir.protocol.values import request_type, response_type


class Fields(NamedTuple):
    """Fields of a message with credentials, by path."""

    secret: tuple[str, ...] = ()
    """Fields that are always replaced."""
    configs: tuple[str, ...] = ()
    """Arrays of configs, with fields `name` and `value`: the values of sensitive names are replaced."""
    name: str = "name"
    """Name of the field with the config's name."""


_TOPIC_CONFIGS: Final = (
    "topology.subtopologies.state_changelog_topics.topic_configs",
    "topology.subtopologies.repartition_source_topics.topic_configs",
)
REQUESTS: Final = {
    ApiKey.SASL_AUTHENTICATE: Fields(("auth_bytes",)),
    ApiKey.CREATE_TOPICS: Fields(configs=("topics.configs",)),
    ApiKey.ALTER_CONFIGS: Fields(configs=("resources.configs",)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Fields(configs=("resources.configs",)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Fields(("upsertions.salt", "upsertions.salted_password")),
    ApiKey.RENEW_DELEGATION_TOKEN: Fields(("hmac",)),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Fields(("hmac",)),
    ApiKey.ENVELOPE: Fields(("request_data", "request_principal")),
    ApiKey.STREAMS_GROUP_HEARTBEAT: Fields(configs=_TOPIC_CONFIGS, name="key"),
}
RESPONSES: Final = {
    ApiKey.SASL_AUTHENTICATE: Fields(("auth_bytes",)),
    ApiKey.CREATE_TOPICS: Fields(configs=("topics.configs",)),
    ApiKey.DESCRIBE_CONFIGS: Fields(configs=("results.configs", "results.configs.synonyms")),
    ApiKey.CREATE_DELEGATION_TOKEN: Fields(("hmac",)),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Fields(("tokens.hmac",)),
    ApiKey.ENVELOPE: Fields(("response_data",)),
    ApiKey.FETCH_SNAPSHOT: Fields(("topics.partitions.unaligned_records",)),
    ApiKey.STREAMS_GROUP_DESCRIBE: Fields(
        configs=tuple(f"groups.{array}" for array in _TOPIC_CONFIGS), name="key"
    ),
}
CHECKED_RESPONSES: Final = {**RESPONSES, ApiKey.SASL_HANDSHAKE: Fields()}
"""Responses that are replaced if they are malformed: that of SaslHandshake may then be the server's token."""


def mask_request(frame: bytearray, api_key: int, version: int) -> bool:
    """Replace the credentials in a complete request. Return False, with filler behind the head, if the
    request is malformed: then the place of its credentials is unknown.
    """
    fields, message = REQUESTS[ApiKey(api_key)], request_type(api_key)
    try:
        body = request_body(frame, 0, len(frame), flexible=is_flexible(api_key, version))
        return _mask(frame, body, message, version, fields, REQUEST_HEAD_BYTES)
    except ProtocolError:
        fill(frame, REQUEST_HEAD_BYTES, len(frame))
        return False


def mask_response(frame: bytearray, api_key: int, version: int) -> bool:
    """Replace the credentials in a complete response, like `mask_request`."""
    fields, message = CHECKED_RESPONSES[ApiKey(api_key)], response_type(api_key)
    try:
        flexible = response_header_version(api_key, version) > 0
        body = response_body(frame, 0, len(frame), flexible=flexible)
        return _mask(frame, body, message, version, fields, RESPONSE_HEAD_BYTES)
    except ProtocolError:
        fill(frame, RESPONSE_HEAD_BYTES, len(frame))
        return False


def _mask(
    frame: bytearray, body: int, message: type[object], version: int, fields: Fields, head_bytes: int
) -> bool:
    """Replace the credentials in the body at `body`. Raises ProtocolError if it is malformed."""
    names = tuple(f"{array}.{fields.name}" for array in fields.configs)
    values = tuple(f"{array}.value" for array in fields.configs)
    paths = fields.secret + names + values
    spans: list[tuple[int, int, int]] = []
    found = None
    if body != INCOMPLETE:
        scan = field_spans(message, version, paths, lambda *span: spans.append(span))
        found = scan.feed(frame, body, len(frame))
    if found is None or body + found != len(frame):
        fill(frame, head_bytes, len(frame))
        return False
    name = b""
    for index, offset, size in spans:
        start, stop = body + offset, body + offset + size
        if paths[index] in names:
            name = bytes(frame[start:stop])
        elif paths[index] in fields.secret or is_sensitive(name.decode("utf-8", "replace")):
            fill(frame, start, stop)
    return True


def is_known(api_key: int, version: int) -> bool:
    """Return True if the schemas have this version of this API."""
    known = versions(api_key)
    return known is not None and version in known


def is_request(frame: bytearray) -> bool:
    """Return True if the complete frame is a request that can be decoded, so no bare SASL token."""
    if len(frame) < CLIENT_ID_OFFSET + 2:
        return False
    _length, api_key, version, _correlation_id = REQUEST_HEAD.unpack_from(frame)
    if not is_known(api_key, version):
        return False
    try:
        body = request_body(frame, 0, len(frame), flexible=is_flexible(api_key, version))
        if body == INCOMPLETE:
            return False
        codec(request_type(api_key), version).decode(frame, body)
    except UnencodableError:
        return True
    except ProtocolError:
        return False
    return True


def mechanism(frame: bytearray) -> str:
    """Return the mechanism of a SaslHandshake request v0; "" if it is malformed."""
    try:
        body = request_body(frame, 0, len(frame), flexible=False)
        return codec(SaslHandshakeRequest, 0).decode(frame, max(body, 0)).mechanism
    except ProtocolError:
        return ""
