"""Edits the text of a quota file and changes as little as an operator would.

Comments, order, spacing and the spelling of numbers stay in entries without changes; comments stay also in
changed entries. New entries are appended. An entry without any remaining quota is removed, together with the
comment lines that surely belong to it: those directly above its header, if a blank line precedes them, and
those directly below its last line, if a blank line follows them.

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

import re
from typing import TYPE_CHECKING, NamedTuple

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array

from weir.quotas.table.entities import Entity
from weir.quotas.table.options import Options, Scope
from weir.quotas.table.quota_entry import (
    ENTRY,
    PACING_KEY,
    SCOPE_KEY,
    Entry,
    QuotaFileError,
    entry_lines,
    number,
)
from weir.quotas.table.quota_file import header_lines, read, render_entries
from weir.quotas.table.quota_table import QuotaKey

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from weir.quotas.table.quota_table import Quota

_TOKEN = re.compile(
    r"""#[^\n]*|"{3}(?:\\.|[^\\])*?"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'""", re.DOTALL
)
"""Regular expression that matches one comment or one string of TOML."""


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
    entries = read(text)
    edits, added = _plan(entries, changes, shadow=shadow, options=options)
    if edits or added:
        text = _ended(text)
    if edits:
        by_lines = _by_lines(text, edits, len(entries))
        text = _by_document(text, edits) if by_lines is None else by_lines
    return _appended(text, added) if added else text


def _ended(text: str) -> str:
    """Return the text, with a line end added if its last line has none."""
    return text if not text or text.endswith("\n") else text + _line_end(text)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


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
    shape = _without_long_strings(text)
    headers = header_lines(shape)
    if len(headers) != entries:
        return None
    lines, kinds = text.split("\n")[:-1], shape.split("\n")[:-1]
    result: list[str] = []
    done = 0
    for edit in edits:
        start = headers[edit.at]
        stop = headers[edit.at + 1] if edit.at + 1 < entries else len(lines)
        core_stop = _core_stop(kinds, start, stop)
        if edit.after.rates:
            first, last, new = start, core_stop, _altered(lines[start:core_stop], edit)
        else:
            first, last = _own_lines(kinds, start, core_stop, stop)
            new = []
        result += lines[done:first] + new
        done = last
    if done == len(lines):  # the last entry was removed: remove the blank lines before it, too
        while result and _is_blank(result[-1]):
            result.pop()
    return "".join(f"{line}\n" for line in result + lines[done:])


def _without_long_strings(text: str) -> str:
    """Return the text with the content of multi-line strings replaced by `x`, with the same number of
    lines.
    """
    if '"""' not in text and "'''" not in text:
        return text
    return _TOKEN.sub(lambda token: re.sub(r".", "x", token[0]) if "\n" in token[0] else token[0], text)


def _core_stop(kinds: list[str], start: int, stop: int) -> int:
    """Return the number of the line after an entry's last value. Comments and blank lines at the entry's end
    come after that line.
    """
    while stop > start + 1 and (_is_blank(kinds[stop - 1]) or _is_comment(kinds[stop - 1])):
        stop -= 1
    return stop


def _own_lines(kinds: list[str], start: int, core_stop: int, stop: int) -> tuple[int, int]:
    """Return (first, last + 1) of the lines to remove if an entry is removed, including the comments that
    surely belong to it. `stop`: line of the next header, or the number of lines.
    """
    first = start
    while first > 0 and _is_comment(kinds[first - 1]):
        first -= 1
    if first == 0 or not _is_blank(kinds[first - 1]):  # the comment belongs to the file or the former entry
        first = start
    last = core_stop
    while last < stop and _is_comment(kinds[last]):
        last += 1
    if last == stop < len(kinds):  # the comment may belong to the next entry
        last = core_stop
    if first == 0 or _is_blank(kinds[first - 1]):
        while last < stop and _is_blank(kinds[last]):
            last += 1
    return first, last


def _is_blank(line: str) -> bool:
    return not line.strip(" \t\r")


def _is_comment(line: str) -> bool:
    return line.lstrip(" \t").startswith("#")


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
    expected = read(text)
    for edit in reversed(edits):
        expected[edit.at : edit.at + 1] = [edit.after] if edit.after.rates else []
    if read(changed) != expected:
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
    for key, was, now in ((PACING_KEY, before.pacing, after.pacing), (SCOPE_KEY, before.scope, after.scope)):
        if now is None or now is Scope.BROKER:
            if was is not now:
                del table[key]
        elif was is not now:
            table[key] = now.value


def _appended(text: str, added: list[Entry]) -> str:
    """Return the text with new entries at its end, after a blank line."""
    if not header_lines(_without_long_strings(text)):
        try:
            document = tomlkit.parse(text)
        except TOMLKitError as error:
            raise _beyond_us() from error
        array = document.get(ENTRY)
        if isinstance(array, Array):
            return _appended_to_array(text, document, array, added)
    ending = _line_end(text)
    if text.strip() and not text.endswith(2 * ending):
        text += ending
    return text + render_entries(added).replace("\n", ending)


def _appended_to_array(text: str, document: TOMLDocument, array: Array, added: list[Entry]) -> str:
    for entry in added:
        _header, *values = entry_lines(entry)
        array.append(tomlkit.value(f"{{{', '.join(values)}}}"))
    changed = tomlkit.dumps(document)
    if read(changed) != read(text) + added:
        raise _beyond_us()
    return changed


def _beyond_us() -> QuotaFileError:
    return QuotaFileError(
        f"the quota file cannot be changed as it is spelled; give each entry a [[{ENTRY}]] line of its own"
    )
