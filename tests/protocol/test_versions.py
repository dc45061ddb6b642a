"""Version ranges and sets, in the notation of Kafka's schemas."""

from __future__ import annotations

import pytest

from weir.protocol.versions import LAST, NONE, VersionRange, VersionSet


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0-5", VersionRange(0, 5)), ("3+", VersionRange(3, LAST)), ("7", VersionRange(7, 7)), ("none", NONE)],
)
def test_version_ranges_are_parsed_and_printed_as_in_kafka(text: str, expected: VersionRange) -> None:
    assert VersionRange.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "5-3", "a", "1-", "-1+x"])
def test_a_malformed_version_range_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        VersionRange.parse(text)


def test_a_version_set_may_have_gaps() -> None:
    found = VersionSet.parse("0-2,5-7")
    assert [version for version in range(10) if version in found] == [0, 1, 2, 5, 6, 7]
    assert str(found) == "0-2,5-7"
    assert VersionSet.of([7, 0, 1, 5, 6, 2]) == found
    assert VersionSet.parse("none") == VersionSet()
    assert str(VersionSet()) == "none"
    assert not VersionSet()
