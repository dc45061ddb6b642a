"""Ranges and sets of versions, in the notation of Kafka's message schemas.

"3" is one version, "0-5" a closed range, "3+" all versions from 3 on, "none" no version. Commas join ranges
to sets ("0-2,5-7").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LAST: Final = 32767
"""Maximum of a range without an end, such as "3+": the largest int16."""


class VersionRange(msgspec.Struct, frozen=True):
    """All versions from `min` to `max`, both included; empty if `max` is below `min`."""

    min: int
    max: int

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Return the range written as "3", "0-5", "3+" or "none". Raises ValueError for other text."""
        if text == "none":
            return NONE
        if text.endswith("+"):
            return cls(int(text[:-1]), LAST)
        low, dash, high = text.partition("-")
        parsed = cls(int(low), int(high if dash else low))
        if parsed.max < parsed.min:
            raise ValueError(f"version range {text!r} ends before it starts")
        return parsed

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.min <= version <= self.max

    def __bool__(self) -> bool:
        return self.min <= self.max

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.min, self.max + 1))

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.max == LAST:
            return f"{self.min}+"
        return str(self.min) if self.min == self.max else f"{self.min}-{self.max}"

    def intersect(self, other: VersionRange) -> VersionRange:
        """Return the versions that both ranges contain; `NONE` if they have no common version."""
        both = VersionRange(max(self.min, other.min), min(self.max, other.max))
        return both or NONE


NONE: Final = VersionRange(0, -1)


class VersionSet(msgspec.Struct, frozen=True):
    """Versions as disjoint ranges in ascending order, with gaps between them."""

    ranges: tuple[VersionRange, ...] = ()

    @classmethod
    def parse(cls, text: str) -> VersionSet:
        """Return the set written as ranges with commas, or as "none". Raises ValueError for other text."""
        ranges = (VersionRange.parse(part) for part in text.split(","))
        return cls(tuple(found for found in ranges if found))

    @classmethod
    def of(cls, versions: Iterable[int]) -> VersionSet:
        """Return the set that contains these versions."""
        ranges: list[VersionRange] = []
        for version in sorted(set(versions)):
            if ranges and ranges[-1].max == version - 1:
                ranges[-1] = VersionRange(ranges[-1].min, version)
            else:
                ranges.append(VersionRange(version, version))
        return cls(tuple(ranges))

    def __contains__(self, version: object) -> bool:
        return any(version in found for found in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __str__(self) -> str:
        return ",".join(map(str, self.ranges)) or "none"
