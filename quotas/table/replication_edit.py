"""Edits the replication throttles in the text of a quota file, and changes as little as an operator would.

Comments, order and spacing stay. New entries are appended. An entry without any remaining throttle is removed
with its own comments (`file_lines`). Throttles are strings and numbers in one line, so lines are replaced one
by one. An entry that is spelled in another way is refused.

>>> text = '[[replication]]  # ours\\nbroker = 1\\nleader.replication.throttled.rate = "1MB"  # for now\\n'
>>> key = ConfigKey(ResourceType.BROKER, "1", "leader.replication.throttled.rate")
>>> print(edited_replication(text, {key: "2000"}), end="")
[[replication]]  # ours
broker = 1
leader.replication.throttled.rate = 2000  # for now
"""

# mypyc: skip, because only offline tools and the command line call it.
from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weir.quotas.replication.throttles import ConfigKey, ResourceType
from weir.quotas.table.entry_places import EntryLines, entry_spans
from weir.quotas.table.file_lines import (
    core_stop,
    ended,
    own_lines,
    spliced,
    with_block,
    without_long_strings,
)
from weir.quotas.table.quota_file import QuotaFileError, read, render_entries
from weir.quotas.table.replication_entry import (
    REPLICATION,
    ReplicationEntry,
    Resource,
    grouped,
    written_value,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ConfigKey", "ResourceType", "edited_replication"]

_VALUE = r"""(?P<value>"(?:\\.|[^"\\])*"|'[^']*'|[^\s#"']+)"""


def edited_replication(text: str, changes: Mapping[ConfigKey, str | None]) -> str:
    """Return the text with changed throttles; None removes a throttle.

    The result parses to `parse(text).replication_altered(changes)`. Raises QuotaFileError if the text is no
    quota file, if a file cannot represent a change, or if Weir cannot edit the spelling of the text.
    """
    wanted = _by_resource(changes)
    entries = read(text).replication
    changed = [entry for entry in entries if _differs(entry, wanted.get(entry.resource, {}))]
    known = {entry.resource for entry in entries}
    added = grouped(
        {key: value for key, value in changes.items() if value is not None and Resource.of(key) not in known}
    )
    if not changed and not added:
        return text
    text = ended(text)
    if changed:
        text = _with_changes(text, entries, wanted)
    return _appended(text, added) if added else text


def _by_resource(changes: Mapping[ConfigKey, str | None]) -> dict[Resource, dict[str, str | None]]:
    wanted: dict[Resource, dict[str, str | None]] = {}
    for key, value in changes.items():
        wanted.setdefault(Resource.of(key), {})[key.name] = value
    return wanted


def _differs(entry: ReplicationEntry, wanted: Mapping[str, str | None]) -> bool:
    return any(entry.values.get(name) != value for name, value in wanted.items())


def _with_changes(
    text: str, entries: list[ReplicationEntry], wanted: Mapping[Resource, Mapping[str, str | None]]
) -> str:
    """Return the text with changed entries. Raises QuotaFileError if the entries are not found."""
    lines, shape = text.split("\n")[:-1], without_long_strings(text).split("\n")[:-1]
    spans = entry_spans(shape, REPLICATION)
    if len(spans) != len(entries):
        raise _beyond_us()
    pieces: list[tuple[int, int, list[str]]] = []
    for entry, span in zip(entries, spans, strict=True):
        its = wanted.get(entry.resource, {})
        if not _differs(entry, its):
            continue
        merged = {**entry.values, **its}
        if all(value is None for value in merged.values()):
            pieces.append((*own_lines(shape, span), []))
        else:
            stop = core_stop(shape, span)
            pieces.append((span.start, stop, _altered(lines, EntryLines(span.start, stop), entry, its)))
    return spliced(lines, pieces)


def _altered(
    lines: list[str], span: EntryLines, entry: ReplicationEntry, wanted: Mapping[str, str | None]
) -> list[str]:
    """Return the lines of one entry with changed throttles. Raises QuotaFileError if a line is not found."""
    result = lines[span.start : span.stop]
    ending = "\r" if result[0].endswith("\r") else ""
    for name, value in wanted.items():
        written = None if value is None else written_value(entry.resource, name, value)
        if name not in entry.values:
            if written is not None:
                result.append(f"{name} = {written}{ending}")
        elif value != entry.values[name]:
            _set(result, name, written)
    merged = {name: value for name, value in {**entry.values, **wanted}.items() if value is not None}
    if _read("\n".join([*result, ""])) != [entry._replace(values=merged)]:
        raise _beyond_us()
    return result


def _set(lines: list[str], name: str, written: str | None) -> None:
    """Replace the value of the line with this key; None removes the line. Raises QuotaFileError if no line
    has the key.
    """
    pattern = re.compile(rf"(?P<key>\s*[\"']?{re.escape(name)}[\"']?\s*=\s*){_VALUE}(?P<after>\s*(#.*)?)")
    for number, line in enumerate(lines):
        if match := pattern.fullmatch(line):
            lines[number : number + 1] = [] if written is None else [match["key"] + written + match["after"]]
            return
    raise _beyond_us()


def _appended(text: str, added: list[ReplicationEntry]) -> str:
    """Return the text with new entries at its end. Raises QuotaFileError if the text has its entries in a
    list, `replication = [...]`.
    """
    after = with_block(text, render_entries(added))
    if REPLICATION not in text:  # then reading the text again would take time for nothing
        return after
    if not entry_spans(without_long_strings(text).split("\n"), REPLICATION) and _read(after) != added:
        raise _beyond_us()
    return after


def _read(text: str) -> list[ReplicationEntry]:
    """Return the entries of a text that this module has changed. Raises QuotaFileError."""
    try:
        return read(text).replication
    except QuotaFileError:
        raise _beyond_us() from None


def _beyond_us() -> QuotaFileError:
    return QuotaFileError(
        "the quota file cannot be changed as it is spelled; give each entry of replication a "
        f"[[{REPLICATION}]] line, and each throttle a line of its own"
    )
