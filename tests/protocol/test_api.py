"""API keys, versions and headers, held to Kafka's own table (data/throttle_fields.json) and error codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weir.protocol import schema
from weir.protocol.api import ApiKey, is_flexible, request_header_version, response_header_version, versions
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import EncodeError, ProtocolError, UnknownVersionError
from weir.protocol.versions import VersionRange

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "throttle_fields.json").read_text())
TABLE: list[dict[str, Any]] = RECORDED["responses"]


def test_api_keys_have_the_names_of_kafkas_schemas() -> None:
    named = {key: found.name for key in schema.api_keys() if (found := schema.api(key)) is not None}
    assert {int(key): key.name.replace("_", "") for key in ApiKey} == {
        key: name.upper() for key, name in named.items()
    }


def test_api_versions_span_the_ranges_of_both_kafka_releases() -> None:
    assert {row["api_key"] for row in TABLE} == set(schema.api_keys())
    for row in TABLE:
        ranges = row["valid_versions"].values()
        low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        assert versions(row["api_key"]) == VersionRange(low, high)
    assert versions(4711) is None


def test_apiversions_and_controlledshutdown_have_special_headers() -> None:
    assert response_header_version(ApiKey.API_VERSIONS, 3) == 0
    assert request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 0) == 0


def test_an_unknown_api_version_is_an_error_that_names_the_version() -> None:
    with pytest.raises(UnknownVersionError, match="Metadata v99"):
        is_flexible(3, 99)
    with pytest.raises(UnknownVersionError, match="API 4711 v0"):
        request_header_version(4711, 0)


def test_error_codes_equal_those_of_kafka() -> None:
    assert {code.name: int(code) for code in ErrorCode} == RECORDED["errors"]
    assert ErrorCode(89).name == "THROTTLING_QUOTA_EXCEEDED"


def test_protocol_errors_print_api_version_field_and_offset() -> None:
    assert str(ProtocolError("bad")) == "bad"
    assert str(ProtocolError("bad", offset=3)) == "at byte 3: bad"
    assert (
        str(ProtocolError("bad", api="MetadataRequest", version=9, offset=3))
        == "MetadataRequest v9 at byte 3: bad"
    )
    assert str(EncodeError("bad", field="a.b", api="X", version=1)) == "X v1, field a.b: bad"
    assert isinstance(EncodeError("bad", field="a"), ProtocolError)
