"""The quota file: text in, `QuotaTable` out, and back.

    [[quota]]
    user = "alice"                   # a principal's name, without "User:"
    client_id = "<default>"          # every client-id of alice that has no quota of its own
    producer_byte_rate = 1_048_576   # bytes per second
    consumer_byte_rate = 2_097_152
    controller_mutation_rate = 0.5   # partitions per second, created, added or deleted
    request_percentage = 12.5        # percent of one thread's time

TOML. What an entry may say: `quota_entry`. One entity, one entry, and one with `mode = "shadow"`. A mistake
raises `QuotaFileError`, whose message is one line: where, what, and what to do about it. TOML readers do not
tell where a value stood, so lines are found by looking for the headers again; where that could mislead
(headers in a multi-line string, or `quota = [...]` in one line), only the entry's number is given.

>>> table = parse('[[quota]]\\nuser = "alice"\\nproducer_byte_rate = 1000\\n')
>>> print(render(table), end="")
[[quota]]
user = "alice"
producer_byte_rate = 1000
"""

from __future__ import annotations

import re
import tomllib

from quotas.entities import Entity
from quotas.quota_entry import ENTRY, Entry, EntryError, QuotaFileError, entry_lines, read_entry, shown
from quotas.table import Quota, QuotaTable

__all__ = ["QuotaFileError", "header_lines", "parse", "read", "render", "render_entries"]

_HEADER = re.compile(rf"\s*\[\[\s*(?:{ENTRY}|\"{ENTRY}\"|'{ENTRY}')\s*\]\]")


def parse(text: str) -> QuotaTable:
    """Read a quota file. Raises QuotaFileError."""
    values: dict[Quota, float] = {}
    shadow: dict[Quota, float] = {}
    for entity, is_shadow, rates in read(text):
        (shadow if is_shadow else values).update({(entity, key): rate for key, rate in rates.items()})
    return QuotaTable(values, shadow)


def read(text: str) -> list[Entry]:
    """The entries of a quota file, in its order. Raises QuotaFileError."""
    document = _toml(text)
    tables = document.pop(ENTRY, [])
    for unknown in document:
        raise QuotaFileError(f"unknown key {shown(unknown)}; begin each quota with [[{ENTRY}]]")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise QuotaFileError(f"{ENTRY!r} is not a list of tables; begin each entry with [[{ENTRY}]]")
    places = _Places(text, len(tables))
    entries: list[Entry] = []
    seen: dict[tuple[Entity, bool], int] = {}
    for number, table in enumerate(tables, start=1):
        try:
            entry = read_entry(table)
        except EntryError as error:
            raise QuotaFileError(f"{places.key(number, error.key)}: {error}") from error
        first = seen.setdefault((entry.entity, entry.is_shadow), number)
        if first != number:
            raise QuotaFileError(
                f"{places.entry(number)}: {entry} has an entry already, {places.entry(first)}; merge the two"
            )
        entries.append(entry)
    return entries


def render(table: QuotaTable) -> str:
    """Write a quota file that `parse` reads back as an equal table, the shadow entries last.

    Raises QuotaFileError for what the format cannot say: a name that is literally `<default>`, a lone
    surrogate in a name, a byte rate with a fraction.
    """
    enforced = [Entry(entity, False, rates) for entity, rates in table.entities()]
    return render_entries(
        [*enforced, *(Entry(entity, True, rates) for entity, rates in table.shadow_entities())]
    )


def render_entries(entries: list[Entry]) -> str:
    """Write entries, a blank line between two. Raises QuotaFileError as `render`."""
    return "\n".join("".join(f"{line}\n" for line in entry_lines(entry)) for entry in entries)


def header_lines(text: str) -> list[int]:
    """Where lines look like the header of an entry, counted from 0."""
    return [number for number, line in enumerate(text.split("\n")) if _HEADER.match(line)]


def _toml(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # not only TOMLDecodeError: numbers of 5000 digits, deep nesting
        last = text.count("\n") + 1
        what = str(error).replace("(at end of document)", f"(at line {last}, the end)")
        raise QuotaFileError(f"not valid TOML: {' '.join(what.split())}; correct this place") from error


class _Places:
    """Where the entries stand in the text, as far as can be told."""

    def __init__(self, text: str, entries: int) -> None:
        self._text = text
        self._entries = entries

    def _headers(self) -> list[int]:
        headers = [line + 1 for line in header_lines(self._text)]
        return headers if len(headers) == self._entries else []

    def entry(self, number: int) -> str:
        """The place of an entry; both numbers count from 1."""
        headers = self._headers()
        return f"[[{ENTRY}]] entry {number}" + (f" (line {headers[number - 1]})" if headers else "")

    def key(self, number: int, key: str | None) -> str:
        """The place of a key of an entry, or of the whole entry."""
        headers = self._headers()
        if headers and key is not None:
            lines = self._text.split("\n")
            start = headers[number - 1]
            stop = headers[number] - 1 if number < len(headers) else len(lines)
            pattern = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]")
            for line in range(start + 1, stop + 1):
                if pattern.match(lines[line - 1]):
                    return f"[[{ENTRY}]] entry {number} (line {line})"
        return self.entry(number)
