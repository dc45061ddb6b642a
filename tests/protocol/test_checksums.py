"""CRC-32C, against the published check values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.protocol.checksums import by_table, crc32c


@pytest.mark.parametrize("checksum", [by_table, crc32c])
def test_crc32c_has_the_published_check_values(checksum: object) -> None:
    assert callable(checksum)
    assert checksum(b"123456789") == 0xE3069283  # the check value of CRC-32C
    assert checksum(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert checksum(b"\xff" * 32) == 0x62A8AB43


@given(st.binary())
def test_crc32c_without_its_package_gives_the_same_checksums(data: bytes) -> None:
    assert by_table(data) == crc32c(data)
