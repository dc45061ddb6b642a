"""Files of expected outcomes, and the comparison of a run with them.

A file has a line for each kind of request, with its versions by outcome, so that changes are easy to read:

    {
    "Metadata": {
     "minimal": {"answer": "0-13"},
     "string-beyond/topics.name": {"closed": "2,8"},
     "version-below": "closed"
    }
    }
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from weir.protocol.versions import VersionSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weir.conformance.probe.case import Result

Entry = dict[str, str] | str
"""Summary → versions, as text; a bare summary for a case without a version in its name."""

VERSION_MAX: Final = 999
"""Highest version in a file: one entry becomes a case for each of its versions."""
_VERSIONED: Final = re.compile(r"(.+?)/v(\d+)/(.+)")


class Difference(msgspec.Struct, frozen=True):
    """A case whose outcome is not the expected one."""

    case: str
    expected: str | None
    """Expected summary; None if the expectations lack the case."""
    found: str | None
    """Summary that was found; None if the case was not run."""

    def __str__(self) -> str:
        return (
            f"{self.case}: expected {self.expected or 'no such case'}, found {self.found or 'no such case'}"
        )


def differences(results: Iterable[Result], expected: Mapping[str, str]) -> list[Difference]:
    """Return the cases whose summaries differ from the expected ones, by name."""
    found = {result.case: result.summary for result in results}
    return [
        Difference(case, expected.get(case), found.get(case))
        for case in sorted({*found, *expected})
        if found.get(case) != expected.get(case)
    ]


def expectations(results: Iterable[Result]) -> bytes:
    """Return a file of expectations: JSON with the outcome of each case."""
    groups: defaultdict[str, dict[str, Entry]] = defaultdict(dict)
    for (group, kind), entry in sorted(_entries(results).items()):
        groups[group][kind] = entry
    return ("{\n" + ",\n".join(_group(name, entries) for name, entries in groups.items()) + "\n}\n").encode()


def _entries(results: Iterable[Result]) -> dict[tuple[str, str], Entry]:
    """Return (API, kind of request) → entry."""
    bare: dict[tuple[str, str], Entry] = {}
    versions: defaultdict[tuple[str, str], defaultdict[str, list[int]]]
    versions = defaultdict(lambda: defaultdict(list))
    for result in results:
        if match := _VERSIONED.fullmatch(result.case):
            versions[match[1], match[3]][result.summary].append(int(match[2]))
        else:
            group, _, kind = result.case.partition("/")
            bare[group, kind] = result.summary
    return bare | {key: _entry(by_summary) for key, by_summary in versions.items()}


def _entry(by_summary: Mapping[str, list[int]]) -> Entry:
    ascending = sorted(by_summary.items(), key=lambda item: min(item[1]))
    return {summary: str(VersionSet.of(found)) for summary, found in ascending}


def _group(name: str, entries: Mapping[str, Entry]) -> str:
    lines = (f" {_text(kind)}: {_text(entry)}" for kind, entry in entries.items())
    return f"{_text(name)}: {{\n" + ",\n".join(lines) + "\n}"


def _text(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def parse_expectations(data: bytes) -> dict[str, str]:
    """Return case name → summary. Raises msgspec.DecodeError if the bytes are no file of expectations."""
    groups = msgspec.json.decode(data, type=dict[str, dict[str, Entry]])
    try:
        return dict(
            pair
            for group, entries in groups.items()
            for kind, entry in entries.items()
            for pair in _cases(group, kind, entry)
        )
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None


def _cases(group: str, kind: str, entry: Entry) -> Iterable[tuple[str, str]]:
    if isinstance(entry, str):
        yield f"{group}/{kind}", entry
        return
    for summary, text in entry.items():
        for versions in VersionSet.parse(text).ranges:
            if versions.max > VERSION_MAX:
                raise ValueError(f"{text!r} has a version above {VERSION_MAX}")
            yield from ((f"{group}/v{version}/{kind}", summary) for version in versions)
