"""Finds entries in the text of a quota file by their headers, `[[quota]]`, `[[group]]` and
`[[replication]]`.

TOML parsers do not report the lines of values, so this module searches the text. If a header stands in a
multi-line string, or entries are spelled without headers, the search finds another number of entries than
the parser. Callers compare the numbers.
"""

# mypyc: skip, because it reads and writes quota files; no request calls it.
from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from weir.quotas.table.group_entry import GROUP
from weir.quotas.table.quota_entry import ENTRY
from weir.quotas.table.replication_entry import REPLICATION

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS = f"{ENTRY}|{REPLICATION}|{GROUP}"
_HEADER = re.compile(rf"\s*\[\[\s*(?:({_KINDS})|\"({_KINDS})\"|'({_KINDS})')\s*\]\]")


class EntryLines(NamedTuple):
    """Lines of an entry, counted from 0."""

    start: int
    """Number of the line with the header."""
    stop: int
    """Number of the line with the next header of any kind; the number of lines for the last entry."""


def entry_spans(lines: Sequence[str], kind: str = ENTRY) -> list[EntryLines]:
    """Return the lines of each entry with the header `[[kind]]`, in the order of the file."""
    headers = [
        (number, match[1] or match[2] or match[3])
        for number, line in enumerate(lines)
        if "[[" in line and (match := _HEADER.match(line))
    ]
    stops = [number for number, _kind in headers[1:]] + [len(lines)]
    return [
        EntryLines(start, stop)
        for (start, its_kind), stop in zip(headers, stops, strict=False)
        if its_kind == kind
    ]


class EntryLocator:
    """Finds the lines of the entries of one kind, for error messages."""

    def __init__(self, text: str, kind: str, entries: int) -> None:
        """Begin without a search. `entries`: number of entries with the header `[[kind]]` that the parser has
        found.
        """
        self._text = text
        self._kind = kind
        self._entries = entries

    @cached_property
    def _lines(self) -> list[str]:
        return self._text.split("\n")

    @cached_property
    def _spans(self) -> list[EntryLines]:
        spans = entry_spans(self._lines, self._kind)
        return spans if len(spans) == self._entries else []

    def entry(self, number: int) -> str:
        """Return the place of an entry in the file as text for error messages; entries and lines count from
        1.
        """
        spans = self._spans
        return self._place(number, spans[number - 1].start) if spans else f"[[{self._kind}]] entry {number}"

    def key(self, number: int, key: str | None) -> str:
        """Return the place of a key in an entry as text for error messages; the place of the entry if the key
        is None or not found.
        """
        if self._spans and key is not None:
            start, stop = self._spans[number - 1]
            pattern = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]")
            for line in range(start + 1, stop):
                if pattern.match(self._lines[line]):
                    return self._place(number, line)
        return self.entry(number)

    def _place(self, number: int, line: int) -> str:
        return f"[[{self._kind}]] entry {number} (line {line + 1})"
