"""Check the pages of the documentation: `python -m tools.prose [PAGE ...]`.

A sentence has at most 25 words and a line at most 120 characters, because longer ones are read twice. Banned
words have a test of their own (`tests/tools/words.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from markdown_it.token import Token

WORDS_MAX: Final = 25
LINE_MAX: Final = 120

_END: Final = re.compile(
    r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9`$€])|(?<=:)\s*\n"
)
_MAY_BE_LONG: Final = re.compile(r"^\s*\||^    |\]\(|\]: http|<http")
"""A line of a table, of indented code, or with a link."""
_WORD: Final = re.compile(r"[^\W_]")


class Finding(NamedTuple):
    """A fault of a page."""

    line: int
    """Number of the line that the paragraph begins in, from 1."""
    text: str
    """What is wrong, with the text."""

    def __str__(self) -> str:
        return f"{self.line}: {self.text}"


def findings(page: str) -> Iterator[Finding]:
    """Yield the long sentences and the long lines of a Markdown page, in order of lines.

    Tables, blocks of code and lines with a link may be longer.
    """
    found = [*_long_sentences(page), *_long_lines(page)]
    yield from sorted(found)


def sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph."""
    return [sentence for sentence in map(str.strip, _END.split(text)) if sentence]


def words(sentence: str) -> int:
    """Return the number of words of a sentence. A figure is a word; punctuation is none."""
    return sum(1 for word in sentence.split() if _WORD.search(word))


def _long_sentences(page: str) -> Iterator[Finding]:
    in_table = False
    for token in MarkdownIt("commonmark").enable("table").parse(page):
        if token.type in ("table_open", "table_close"):
            in_table = token.type == "table_open"
        elif token.type == "inline" and not in_table and token.map:
            for sentence in sentences(_plain(token)):
                if (count := words(sentence)) > WORDS_MAX:
                    yield Finding(token.map[0] + 1, f"a sentence of {count} words: {sentence!r}")


def _plain(inline: Token) -> str:
    """Return the text of a paragraph; a piece of code counts as one word."""
    parts = []
    for child in inline.children or ():
        if child.type == "code_inline":
            parts.append("`" + re.sub(r"\s+", "\u2423", child.content) + "`")
        elif child.type in ("softbreak", "hardbreak"):
            parts.append("\n" if child.type == "hardbreak" else " ")
        elif child.type == "text":
            parts.append(child.content)
    return "".join(parts)


def _long_lines(page: str) -> Iterator[Finding]:
    in_code = False
    for number, line in enumerate(page.splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            in_code = not in_code
        elif not in_code and len(line) > LINE_MAX and not _MAY_BE_LONG.search(line):
            yield Finding(number, f"a line of {len(line)} characters: {line[:60]!r}…")
