"""QuotaText: the text of a quota file, in blocks of few entries.

To change one of 100,000 entries, Weir parses and edits one block.

A block begins where the text of an entry begins, with the blank lines and comments above its header. A text
whose headers do not show its entries (`quota = [...]`, multi-line strings) is one block.
"""

# mypyc: skip, because it reads and writes quota files; no request calls it.
from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final

from weir.quotas.table.entry_places import entry_spans
from weir.quotas.table.file_lines import is_blank, is_comment
from weir.quotas.table.immutable_map import ImmutableMap
from weir.quotas.table.quota_edit import edited
from weir.quotas.table.quota_entry import QuotaFileError
from weir.quotas.table.quota_file import read, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weir.quotas.table.entities import Entity
    from weir.quotas.table.options import Options
    from weir.quotas.table.quota_entry import Entry
    from weir.quotas.table.quota_table import Quota

BLOCK: Final = 16
"""Number of entries in a block, which take a millisecond to parse. A block has more if comments leave no
place to divide it.
"""

CANNOT: Final = "the file cannot be altered without other changes: edit it by hand"


class QuotaText:
    """A quota file's text. Immutable."""

    __slots__ = ("_lengths", "_numbers", "content", "mark")

    def __init__(self, text: str, entries: Sequence[Entry], mark: bytes = b"") -> None:
        """Begin with a text that is read as these entries, and maybe replication throttles. `mark`: the
        file's byte order mark.
        """
        self.content: bytes = mark + text.encode()
        """The file's bytes."""
        self.mark = mark
        """The file's byte order mark."""
        self._lengths: list[int] = []
        """Length (bytes) of each block."""
        numbers: dict[tuple[Entity, bool], int] = {}
        for block, its in _divided(text, entries):
            numbers |= {(entry.entity, entry.is_shadow): len(self._lengths) for entry in its}
            self._lengths.append(len(block.encode()))
        self._numbers = ImmutableMap(numbers)
        """(Entity, True for its shadow entry) → number of the block with the entry."""

    def __str__(self) -> str:
        """Return the text, without the byte order mark."""
        return self.content[len(self.mark) :].decode()

    def edited(
        self,
        changes: Mapping[Quota, float | None],
        *,
        shadow: bool = False,
        options: Options | None = None,
    ) -> QuotaText:
        """Return the text with changed values, as `quota_edit.edited` does. Only the blocks with changed
        entries are parsed. Raises QuotaFileError.
        """
        by_block: dict[int, dict[Quota, float | None]] = {}
        for (entity, key), value in changes.items():
            number = self._numbers.get((entity, shadow), len(self._lengths) - 1)  # new entries come last
            by_block.setdefault(number, {})[entity, key] = value
        made = QuotaText("", (), self.mark)
        made._lengths, made._numbers = self._lengths.copy(), self._numbers
        content, done = memoryview(self.content), 0
        starts = list(accumulate(self._lengths, initial=len(self.mark)))
        pieces: list[bytes | memoryview] = []
        for number in sorted(by_block):
            start, stop = starts[number], starts[number + 1]
            before = str(content[start:stop], "utf-8")
            after = edited(before, by_block[number], shadow=shadow, options=options)
            if after != before:
                old, new = read(before, is_whole=False), read(after, is_whole=False)
                expected = table_of(old).altered(by_block[number], shadow=shadow, options=options)
                if table_of(new) != expected:
                    raise QuotaFileError(CANNOT)
                made._note(number, old.quotas, after, new.quotas)
            pieces += [content[done:start], after.encode()]
            done = stop
        made.content = b"".join([*pieces, content[done:]])
        return made

    def _note(self, number: int, before: Sequence[Entry], text: str, entries: Sequence[Entry]) -> None:
        """Note that a block has another text now. Divide the last block, which grows with new entries."""
        divided: list[tuple[str, Sequence[Entry]]] = [(text, entries)]
        if number == len(self._lengths) - 1 and len(entries) >= 2 * BLOCK:
            divided = list(_divided(text, entries))
        self._lengths[number : number + 1] = [len(block.encode()) for block, _entries in divided]
        numbers: dict[tuple[Entity, bool], int | None] = {
            (entry.entity, entry.is_shadow): None for entry in before
        }
        for index, (_block, its) in enumerate(divided, start=number):
            numbers |= {(entry.entity, entry.is_shadow): index for entry in its}
        self._numbers = self._numbers.updated(numbers)


def _divided(text: str, entries: Sequence[Entry]) -> Iterator[tuple[str, Sequence[Entry]]]:
    """Yield the text of each block with its entries, at least one block."""
    lines = text.split("\n")
    spans = entry_spans(lines)
    if len(spans) != len(entries) or '"""' in text or "'''" in text:
        spans = []
    start = first = 0
    for number, span in enumerate(spans):
        if number - first >= BLOCK:
            stop = _beginning(lines, span.start)
            if stop is not None:
                yield "".join(f"{line}\n" for line in lines[start:stop]), entries[first:number]
                start, first = stop, number
    yield "\n".join(lines[start:]), entries[first:]


def _beginning(lines: Sequence[str], header: int) -> int | None:
    """Return the number of the first line that belongs to the entry with this header, with the blank lines
    before the entry; None if it is not clear to which entry the comments above the header belong.
    """
    first = header
    while is_comment(lines[first - 1]):
        first -= 1
    if not is_blank(lines[first - 1]):
        return header if first == header else None
    while is_blank(lines[first - 1]):
        first -= 1
    return first
