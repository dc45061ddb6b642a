"""Groups of equal findings, the traffic that was checked, and their JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from weir.conformance.verify.finding import Finding
from weir.conformance.verify.rules import Severity
from weir.conformance.verify.traffic import Exchange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weir.conformance.verify.traffic import Traffic

Key = tuple[str, str, int, str]
"""Rule, API, version, and path without indices (`Finding.key`)."""
GROUPS_MAX: Final = 10_000
"""Number of groups above which new ones have no API, version and path: a peer may invent these."""
ORDER: Final = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


class FindingGroup(msgspec.Struct):
    """Findings with the same key."""

    first: Finding
    count: int
    new: bool
    """False if the baseline has the key."""
    capture: str = ""
    """Name of the capture that has the first finding: connection numbers are those of this capture."""

    @property
    def fails(self) -> bool:
        """True if the group is new, and an error or warning."""
        return self.new and self.first.severity is not Severity.NOTE


class Checked(msgspec.Struct):
    """The traffic that was checked."""

    captures: list[str]
    connections: int
    frames: int
    """Number of frames, also of those without an API."""
    bytes: int
    apis: list[Exchange]
    """Frames by API and version."""


class VerifyReport(msgspec.Struct):
    """JSON of `weir verify --json`, which serves as a baseline too."""

    findings: list[FindingGroup]
    checked: Checked | None = None
    """None in a baseline that lacks it."""


class Groups:
    """Counts findings by their key. Memory grows with the number of keys, up to `GROUPS_MAX`."""

    def __init__(self, known: Iterable[Key] = ()) -> None:
        """`known`: keys of the baseline."""
        self._known = frozenset(known)
        self._groups: dict[Key, FindingGroup] = {}

    def add(self, finding: Finding, capture: str = "") -> None:
        """Count one finding of a capture. Above `GROUPS_MAX`, findings outside the baseline are counted by
        rule alone.
        """
        key = finding.key
        if len(self._groups) >= GROUPS_MAX and key not in self._groups and key not in self._known:
            finding = msgspec.structs.replace(finding, api="", version=-1, path="")
            key = finding.key
        if key in self._groups:
            self._groups[key].count += 1
        else:
            self._groups[key] = FindingGroup(finding, 1, key not in self._known, capture)

    def sorted(self) -> list[FindingGroup]:
        """Return the groups: errors first, then by API, version and rule."""
        return sorted(
            self._groups.values(),
            key=lambda one: (ORDER[one.first.severity], one.first.key[1:3], one.first.rule),
        )

    def report(self, captures: Sequence[str], traffic: Traffic) -> VerifyReport:
        """Return the groups, with the traffic of these captures."""
        checked = Checked(
            [*captures], traffic.connections, traffic.frames, traffic.bytes, traffic.exchanges()
        )
        return VerifyReport(self.sorted(), checked)


def totals(groups: Iterable[FindingGroup]) -> dict[Severity, int]:
    """Return the numbers of findings, errors first; without severities that have none."""
    found = dict.fromkeys(ORDER, 0)
    for group in groups:
        found[group.first.severity] += group.count
    return {severity: count for severity, count in found.items() if count}


def report_json(report: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=2)


def parse_report(data: bytes) -> list[Key]:
    """Return the keys in a report. Raises msgspec.ValidationError or DecodeError for other bytes."""
    return [group.first.key for group in msgspec.json.decode(data, type=VerifyReport).findings]
