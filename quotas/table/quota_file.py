"""The quota file: parses its text to a `QuotaTable`, and renders a table as text.

    [[quota]]
    user = "alice"                   # a principal's name, without "User:"
    client_id = "<default>"          # every client-id of alice that has no quota of its own
    producer_byte_rate = 1_048_576   # bytes per second
    consumer_byte_rate = "2MiB"      # 2^20 bytes each; 1MB is 10^6
    controller_mutation_rate = 0.5   # partitions per second, created, added or deleted
    request_percentage = 12.5        # percent of one thread's time
    pacing = "smooth"                # byte rates are held evenly
    scope = "cluster"                # one budget for all brokers

The file is TOML; `quota_entry` has the keys of an entry. An entity may have one entry, and in addition one
with `mode = "shadow"`. An error raises `QuotaFileError`, whose message is one line: the place, the error, and
the remedy. TOML parsers do not report the lines of values, so this module searches the text for the headers
of entries. If that search could be wrong (headers in a multi-line string, or `quota = [...]` in one line),
the message has only the entry's number.

>>> table = parse('[[quota]]\\nuser = "alice"\\nproducer_byte_rate = 1000\\n')
>>> print(render(table), end="")
[[quota]]
user = "alice"
producer_byte_rate = 1000
"""

# mypyc: skip, because it reads and writes quota files; no request calls it.
from __future__ import annotations

import re
import tomllib
from functools import cached_property, partial
from typing import TYPE_CHECKING

from weir.quotas.table.entities import Entity
from weir.quotas.table.options import PLAIN, Options
from weir.quotas.table.quota_entry import (
    ENTRY,
    Entry,
    EntryError,
    QuotaFileError,
    entry_lines,
    read_entry,
    shown,
)
from weir.quotas.table.quota_table import Quota, QuotaTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "QuotaFileError",
    "entries_of",
    "header_lines",
    "parse",
    "read",
    "render",
    "render_entries",
    "scan",
]

_HEADER = re.compile(rf"\s*\[\[\s*(?:{ENTRY}|\"{ENTRY}\"|'{ENTRY}')\s*\]\]")


def parse(text: str) -> QuotaTable:
    """Return the table of the quotas in the text of a quota file. Raises QuotaFileError."""
    values: tuple[dict[Quota, float], dict[Quota, float]] = ({}, {})
    options: tuple[dict[Quota, Options], dict[Quota, Options]] = ({}, {})
    for entity, is_shadow, rates, its_options in read(text):
        values[is_shadow].update({(entity, key): rate for key, rate in rates.items()})
        if its_options != PLAIN:
            options[is_shadow].update({(entity, key): its_options for key in rates})
    return QuotaTable(*values, *options)


def read(text: str) -> list[Entry]:
    """Return the entries of a quota file, given its text, in the order of the file. Raises QuotaFileError."""
    entries = []
    for _place, entry in scan(text):
        if isinstance(entry, QuotaFileError):
            raise entry
        entries.append(entry)
    return entries


def scan(text: str) -> Iterator[tuple[Callable[[], str], Entry | QuotaFileError]]:
    """Yield (function that returns the entry's place, entry) for each entry of a quota file, in the order of
    the file; instead of an invalid entry its error. Raises QuotaFileError if the text has no entries.
    """
    tables = _tables(text)
    locator = _Locator(text, len(tables))
    seen: dict[tuple[Entity, bool], int] = {}
    for number, table in enumerate(tables, start=1):
        place = partial(locator.entry, number)
        try:
            entry = read_entry(table)
        except EntryError as error:
            yield place, QuotaFileError(f"{locator.key(number, error.key)}: {error}")
            continue
        first = seen.setdefault((entry.entity, entry.is_shadow), number)
        if first != number:
            where = f"{locator.entry(number)}: {entry} has an entry already, {locator.entry(first)}"
            yield place, QuotaFileError(f"{where}; merge the two")
        else:
            yield place, entry


def _tables(text: str) -> list[dict[str, object]]:
    document = _toml(text)
    tables = document.pop(ENTRY, [])
    for unknown in document:
        raise QuotaFileError(f"unknown key {shown(unknown)}; begin each quota with [[{ENTRY}]]")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise QuotaFileError(f"{ENTRY!r} is not a list of tables; begin each entry with [[{ENTRY}]]")
    return tables


def render(table: QuotaTable) -> str:
    """Return a quota file that `parse` reads back as an equal table, the shadow entries last.

    Raises QuotaFileError if the format cannot represent a quota: a name that is literally `<default>`, a lone
    surrogate in a name, a byte rate with a fraction.
    """
    return render_entries(entries_of(table))


def entries_of(table: QuotaTable) -> list[Entry]:
    """Return the entries of a table, the shadow entries last."""
    enforced = [Entry(entity, False, rates, table.options_of(entity)) for entity, rates in table.entities()]
    shadow = (
        Entry(entity, True, rates, table.options_of(entity, shadow=True))
        for entity, rates in table.shadow_entities()
    )
    return [*enforced, *shadow]


def render_entries(entries: list[Entry]) -> str:
    """Return the text of entries, separated by blank lines. Raises QuotaFileError like `render`."""
    return "\n".join("".join(f"{line}\n" for line in entry_lines(entry)) for entry in entries)


def header_lines(text: str) -> list[int]:
    """Return the numbers (from 0) of the lines of a quota file that look like the header of an entry,
    `[[quota]]`.
    """
    return [number for number, line in enumerate(text.split("\n")) if _HEADER.match(line)]


def _toml(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    # Numbers of 5000 digits raise ValueError, deep nesting raises RecursionError.
    except (ValueError, RecursionError) as error:
        last = text.count("\n") + 1
        what = str(error).replace("(at end of document)", f"(at line {last}, the end)")
        raise QuotaFileError(f"not valid TOML: {' '.join(what.split())}; correct this place") from error


class _Locator:
    """Finds the lines of entries in the text, for error messages."""

    def __init__(self, text: str, entries: int) -> None:
        self._text = text
        self._entries = entries

    @cached_property
    def _lines(self) -> list[str]:
        return self._text.split("\n")

    @cached_property
    def _headers(self) -> list[int]:
        headers = [line + 1 for line in header_lines(self._text)]
        return headers if len(headers) == self._entries else []

    def entry(self, number: int) -> str:
        """Return the place of an entry in the file as text for error messages; entries and lines count from
        1.
        """
        headers = self._headers
        return f"[[{ENTRY}]] entry {number}" + (f" (line {headers[number - 1]})" if headers else "")

    def key(self, number: int, key: str | None) -> str:
        """Return the place of a key in an entry as text for error messages; the place of the entry if the key
        is None or not found.
        """
        headers = self._headers
        if headers and key is not None:
            lines = self._lines
            start = headers[number - 1]
            stop = headers[number] - 1 if number < len(headers) else len(lines)
            pattern = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]")
            for line in range(start + 1, stop + 1):
                if pattern.match(lines[line - 1]):
                    return f"[[{ENTRY}]] entry {number} (line {line})"
        return self.entry(number)
