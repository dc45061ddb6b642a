"""Edits the text of a quota file and changes as little as an operator would.

Comments, order, spacing and the spelling of numbers stay in entries without changes; comments stay also in
changed entries. New entries are appended. An entry without any remaining quota is removed with its comment
lines. These stand directly above its header, below a blank line, or directly below its last line, above a
blank line.

>>> text = '[[quota]]  # hers\\nuser = "alice"\\nproducer_byte_rate = 1_000  # for now\\n'
>>> print(edited(text, {(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE): 2000.0}), end="")
[[quota]]  # hers
user = "alice"
producer_byte_rate = 2000  # for now

tomlkit, which preserves comments and spacing, takes ten times as long as tomllib to parse a file. So this
module finds the lines of entries by their headers, and tomlkit parses only the entries that change. If
headers do not show the entries (`quota = [...]`, or a header spelled with escapes), tomlkit parses the whole
text.
"""

# mypyc: skip, because only offline tools and the command line call it.
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array

from weir.quotas.table.entities import Entity
from weir.quotas.table.entry_places import entry_spans
from weir.quotas.table.file_lines import (
    core_stop,
    ended,
    own_lines,
    spliced,
    with_block,
    without_long_strings,
)
from weir.quotas.table.options import Options, Scope
from weir.quotas.table.quota_entry import (
    ENTRY,
    PACING_KEY,
    SCOPE_KEY,
    UNTIL_KEY,
    Entry,
    QuotaFileError,
    entry_lines,
    number,
)
from weir.quotas.table.quota_file import read, render_entries
from weir.quotas.table.quota_table import QuotaKey
from weir.quotas.table.times import written_time

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from weir.quotas.table.quota_table import Quota


def edited(
    text: str,
    changes: Mapping[Quota, float | None],
    *,
    shadow: bool = False,
    options: Options | None = None,
) -> str:
    """Return the text with changed values (None removes a value) of enforced entries or of shadow entries.
    The changed entries get `options`, or keep their own if `options` is None.

    The result parses to `parse(text).altered(changes, ...)`. Raises QuotaFileError if the text is no quota
    file, if a file cannot represent a change (see `render`), or if Weir cannot edit the spelling of the text.
    """
    entries = read(text, is_whole=False).quotas
    edits, added = _plan(entries, changes, shadow=shadow, options=options)
    if edits or added:
        text = ended(text)
    if edits:
        by_lines = _by_lines(text, edits, len(entries))
        text = _by_document(text, edits) if by_lines is None else by_lines
    return _appended(text, added) if added else text


class _Edit(NamedTuple):
    """A change of one entry."""

    at: int
    """Number of the entry in the file, from 0."""
    before: Entry
    after: Entry
    """Entry after the change. If it has no rates, the entry is removed from the file."""


def _plan(
    entries: list[Entry], changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None
) -> tuple[list[_Edit], list[Entry]]:
    """Return (edits of entries that the file has, in the order of the file; new entries to append), which
    together make the `changes`.
    """
    wanted: dict[Entity, dict[QuotaKey, float | None]] = {}
    for (entity, key), value in changes.items():
        wanted.setdefault(entity, {})[key] = value
    edits = []
    for index, entry in enumerate(entries):
        if entry.is_shadow == shadow and entry.entity in wanted:
            after = _merged(entry, wanted.pop(entry.entity), options)
            if after != entry:
                edits.append(_Edit(index, entry, after))
    added = (_merged(Entry(entity, shadow, {}), changed, options) for entity, changed in wanted.items())
    return edits, [entry for entry in added if entry.rates]


def _merged(entry: Entry, changed: Mapping[QuotaKey, float | None], options: Options | None) -> Entry:
    rates = {key: rate for key, rate in {**entry.rates, **changed}.items() if rate is not None}
    return entry._replace(rates=rates, options=entry.options if options is None else options)


def _by_lines(text: str, edits: list[_Edit], entries: int) -> str | None:
    """Return the text with changed entries; None if the lines of entries cannot be found by their headers.

    Values of entries are strings and numbers. So every line outside strings that looks like a header is one.
    If there are as many such lines as entries, all headers are found.
    """
    lines, kinds = text.split("\n")[:-1], without_long_strings(text).split("\n")[:-1]
    spans = entry_spans(kinds)
    if len(spans) != entries:
        return None
    pieces = []
    for edit in edits:
        span = spans[edit.at]
        stop = core_stop(kinds, span)
        if edit.after.rates:
            pieces.append((span.start, stop, _altered(lines[span.start : stop], edit)))
        else:
            pieces.append((*own_lines(kinds, span), []))
    return spliced(lines, pieces)


def _altered(lines: list[str], edit: _Edit) -> list[str]:
    """Return the lines of one entry after the change `edit`. Each line keeps its kind of line end (LF or
    CRLF).
    """
    text = "".join(line.removesuffix("\r") + "\n" for line in lines)
    changed = _by_document(text, [edit._replace(at=0)]).removesuffix("\n").split("\n")
    inner = "\r" if lines[0].endswith("\r") else ""
    outer = "\r" if lines[-1].endswith("\r") else ""
    return [line + inner for line in changed[:-1]] + [changed[-1] + outer]


def _by_document(text: str, edits: list[_Edit]) -> str:
    """Return the text with changed entries, edited by tomlkit. Raises QuotaFileError if tomlkit fails, or if
    the result does not parse to the expected entries.
    """
    try:
        document = tomlkit.parse(text)
        tables = document[ENTRY]
        if isinstance(tables, AoT | Array):
            for edit in reversed(edits):
                if edit.after.rates:
                    _set_rates(tables[edit.at], edit)
                    _set_options(tables[edit.at], edit)
                else:
                    del tables[edit.at]
        changed = tomlkit.dumps(document)
    except TOMLKitError as error:
        raise _beyond_us() from error
    expected = read(text, is_whole=False)
    for edit in reversed(edits):
        expected.quotas[edit.at : edit.at + 1] = [edit.after] if edit.after.rates else []
    if read(changed, is_whole=False) != expected:
        raise _beyond_us()
    return changed


def _set_rates(table: MutableMapping[str, object], edit: _Edit) -> None:
    entity, before, after = edit.before.entity, edit.before.rates, edit.after.rates
    for key in before:
        if key not in after:
            del table[key.value]
    for key, rate in after.items():
        if rate != before.get(key):
            table[key.value] = tomlkit.value(number(entity, key, rate))


def _set_options(table: MutableMapping[str, object], edit: _Edit) -> None:
    before, after = edit.before.options, edit.after.options
    if before.until != after.until:
        if after.until is None:
            del table[UNTIL_KEY]
        else:
            table[UNTIL_KEY] = tomlkit.value(written_time(after.until))
    for key, was, now in ((PACING_KEY, before.pacing, after.pacing), (SCOPE_KEY, before.scope, after.scope)):
        if now is None or now is Scope.BROKER:
            if was is not now:
                del table[key]
        elif was is not now:
            table[key] = now.value


def _appended(text: str, added: list[Entry]) -> str:
    """Return the text with new entries at its end, after a blank line."""
    if not entry_spans(without_long_strings(text).split("\n")):
        try:
            document = tomlkit.parse(text)
        except TOMLKitError as error:
            raise _beyond_us() from error
        array = document.get(ENTRY)
        if isinstance(array, Array):
            return _appended_to_array(text, document, array, added)
    return with_block(text, render_entries(added))


def _appended_to_array(text: str, document: TOMLDocument, array: Array, added: list[Entry]) -> str:
    for entry in added:
        _header, *values = entry_lines(entry)
        array.append(tomlkit.value(f"{{{', '.join(values)}}}"))
    changed = tomlkit.dumps(document)
    if read(changed, is_whole=False).quotas != read(text, is_whole=False).quotas + added:
        raise _beyond_us()
    return changed


def _beyond_us() -> QuotaFileError:
    return QuotaFileError(
        f"the quota file cannot be changed as it is spelled; give each entry a [[{ENTRY}]] line of its own"
    )
