"""Groups of equal findings, and their JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from weir.conformance.verify.finding import Finding
from weir.conformance.verify.rules import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

Key = tuple[str, str, int, str]
"""Rule, API, version, and path without indices (`Finding.key`)."""
_ORDER: Final = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


class Group(msgspec.Struct):
    """Findings with the same key."""

    first: Finding
    count: int
    new: bool
    """False if the baseline has the key."""

    @property
    def fails(self) -> bool:
        """True if the group is new, and an error or warning."""
        return self.new and self.first.severity is not Severity.NOTE


class Report(msgspec.Struct):
    """JSON of `weir verify --json`, which serves as a baseline too."""

    findings: list[Group]


class Groups:
    """Counts findings by their key. Memory grows with the number of keys, not of findings."""

    def __init__(self, known: Iterable[Key] = ()) -> None:
        """`known`: keys of the baseline."""
        self._known = frozenset(known)
        self._groups: dict[Key, Group] = {}

    def add(self, finding: Finding) -> None:
        """Count one finding."""
        key = finding.key
        if key in self._groups:
            self._groups[key].count += 1
        else:
            self._groups[key] = Group(finding, 1, key not in self._known)

    def sorted(self) -> list[Group]:
        """Return the groups: errors first, then by API, version and rule."""
        return sorted(
            self._groups.values(),
            key=lambda one: (_ORDER[one.first.severity], one.first.key[1:3], one.first.rule),
        )

    def report(self) -> bytes:
        """Return the groups as JSON."""
        return msgspec.json.format(msgspec.json.encode(Report(self.sorted())), indent=2)


def parse_report(data: bytes) -> list[Key]:
    """Return the keys in a report. Raises msgspec.ValidationError or DecodeError for other bytes."""
    return [group.first.key for group in msgspec.json.decode(data, type=Report).findings]
