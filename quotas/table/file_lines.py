"""Lines of a quota file's text: which of them belong to an entry, and the text with some of them replaced.

An entry's own comments are those directly above its header, if a blank line precedes them, and those directly
below its last line, if a blank line follows them. Other comments stay if the entry is removed.
"""

# mypyc: skip, because only offline tools and the command line call it.
from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weir.quotas.table.entry_places import EntryLines

_TOKEN = re.compile(
    r"""#[^\n]*|"{3}(?:\\.|[^\\])*?"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'""", re.DOTALL
)
"""Regular expression that matches one comment or one string of TOML."""


def ended(text: str) -> str:
    """Return the text, with a line end added if its last line has none."""
    return text if not text or text.endswith("\n") else text + line_end(text)


def line_end(text: str) -> str:
    """Return the kind of line end (LF or CRLF) that the text has."""
    return "\r\n" if "\r\n" in text else "\n"


def with_block(text: str, block: str) -> str:
    """Return the text with a block of lines at its end, after a blank line."""
    ending = line_end(text)
    if text.strip() and not text.endswith(2 * ending):
        text += ending
    return text + block.replace("\n", ending)


def without_long_strings(text: str) -> str:
    """Return the text with the content of multi-line strings replaced by `x`, with the same number of
    lines.
    """
    if '"""' not in text and "'''" not in text:
        return text
    return _TOKEN.sub(lambda token: re.sub(r".", "x", token[0]) if "\n" in token[0] else token[0], text)


def core_stop(lines: list[str], span: EntryLines) -> int:
    """Return the number of the line after an entry's last value. Comments and blank lines at the entry's end
    come after that line.
    """
    start, stop = span
    while stop > start + 1 and (is_blank(lines[stop - 1]) or is_comment(lines[stop - 1])):
        stop -= 1
    return stop


def own_lines(lines: list[str], span: EntryLines) -> tuple[int, int]:
    """Return (first, last + 1) of the lines to remove if an entry is removed, including the comments that
    surely belong to it.
    """
    start, stop = span
    first = start
    while first > 0 and is_comment(lines[first - 1]):
        first -= 1
    if first == 0 or not is_blank(lines[first - 1]):  # the comment belongs to the file or the former entry
        first = start
    core = last = core_stop(lines, span)
    while last < stop and is_comment(lines[last]):
        last += 1
    if last == stop < len(lines):  # the comment may belong to the next entry
        last = core
    if first == 0 or is_blank(lines[first - 1]):
        while last < stop and is_blank(lines[last]):
            last += 1
    return first, last


def spliced(lines: list[str], pieces: Iterable[tuple[int, int, list[str]]]) -> str:
    """Return the text of the lines, in which each piece (first line, last line + 1, new lines) is replaced;
    the pieces are in the order of the lines. If the last lines are removed, so are the blank lines before
    them.
    """
    result: list[str] = []
    done = 0
    for first, last, new in pieces:
        result += lines[done:first] + new
        done = last
    if done == len(lines):
        while result and is_blank(result[-1]):
            result.pop()
    return "".join(f"{line}\n" for line in result + lines[done:])


def is_blank(line: str) -> bool:
    """Return True if the line has no characters but spaces."""
    return not line.strip(" \t\r")


def is_comment(line: str) -> bool:
    """Return True if the line has only a comment."""
    return line.lstrip(" \t").startswith("#")
