"""The schema model: what a layout says of a version, and that it is read lazily and once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from weir.protocol import schema


def layout(name: str, version: int) -> schema.Layout:
    found = schema.message(name)
    assert found is not None
    return found.layout(version)


def test_unknown_schemas_are_none_and_unknown_versions_are_errors() -> None:
    assert schema.api(4711) is None
    for name in ("Metadata", "metadataRequest", "NoSuchRequest", "Request", ""):
        assert schema.message(name) is None
    with pytest.raises(ValueError, match="versions 0-13, not 14"):
        layout("MetadataRequest", 14)


def test_importing_the_protocol_package_reads_no_schema() -> None:
    script = "import weir.protocol.schema as s, weir.protocol.messages; print(s._api.cache_info().currsize)"
    finished = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    assert finished.stdout.strip() == "0"
