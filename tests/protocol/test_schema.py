"""The schema model: what a layout says of a version, and that it is read lazily and once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from protocol import schema


def layout(name: str, version: int) -> schema.Layout:
    found = schema.message(name)
    assert found is not None
    return found.layout(version)


def test_a_schema_layout_has_typed_fields_in_wire_order() -> None:
    fetch = layout("FetchResponse", 12)
    assert [slot.name for slot in fetch.fields] == [
        "throttle_time_ms",
        "error_code",
        "session_id",
        "responses",
    ]
    responses = fetch.fields[-1]
    assert responses.is_array
    assert responses.compact
    assert responses.struct is not None
    assert [slot.name for slot in responses.struct.fields] == ["topic", "partitions"]


def test_tagged_fields_of_a_layout_are_separate_and_keyed_by_tag() -> None:
    found = layout("ApiVersionsResponse", 3)
    tagged = [(slot.tag, slot.name) for slot in found.tagged]
    assert tagged == sorted(tagged)
    assert tagged[1] == (1, "finalized_features_epoch")
    assert "supported_features" not in [slot.name for slot in found.fields]


def test_a_layout_lists_fields_absent_from_its_version() -> None:
    assert "allow_auto_topic_creation" in [field.name for field in layout("MetadataRequest", 3).absent]
    assert layout("MetadataRequest", 10).absent == ()


def test_nullability_of_a_field_follows_the_version() -> None:
    assert not layout("MetadataRequest", 0).fields[0].nullable
    assert layout("MetadataRequest", 1).fields[0].nullable


def test_the_client_id_is_never_compact() -> None:
    assert [slot.compact for slot in schema.header("request").layout(2).fields] == [True, True, True, False]


def test_schemas_use_the_newest_api_and_field_names() -> None:
    found = schema.api(74)
    assert found is not None
    assert found.name == "ListConfigResources"
    assert [slot.name for slot in layout("VoteRequest", 0).fields] == ["cluster_id", "topics"]


def test_unknown_schemas_are_none_and_unknown_versions_are_errors() -> None:
    assert schema.api(4711) is None
    for name in ("Metadata", "metadataRequest", "NoSuchRequest", "Request", ""):
        assert schema.message(name) is None
    with pytest.raises(ValueError, match="versions 0-13, not 14"):
        layout("MetadataRequest", 14)


def test_schema_layouts_are_cached() -> None:
    assert layout("MetadataRequest", 5) is layout("MetadataRequest", 5)


def test_importing_the_protocol_package_reads_no_schema() -> None:
    script = "import protocol, protocol.schema as s, protocol.messages; print(s.api.cache_info().currsize)"
    finished = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    assert finished.stdout.strip() == "0"
