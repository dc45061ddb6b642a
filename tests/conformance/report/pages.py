"""A page of a report, parsed: its matrix, text, elements and links."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import NamedTuple

NETWORKED = {"src", "srcset", "action", "formaction", "poster", "data", "background", "ping", "manifest"}


class Cell(NamedTuple):
    tone: str
    title: str
    words: list[str]


class Parsed(HTMLParser):
    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        """Tag, name and value."""
        self.words: list[str] = []
        self.cells: dict[tuple[str, str], Cell] = {}
        """API and version's column → cell."""
        self._columns: list[str] = []
        self._row: list[str] = []
        self._place = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in found.items()]
        if tag == "tr":
            self._row = []
        elif tag in ("th", "td"):
            self._place = found.get("scope", tag)
            self._row.append("")
        if tag == "td":
            column = self._columns[len(self._row) - 1]
            self.cells[self._row[0], column] = Cell(found["class"], found.get("title", ""), [])

    def handle_endtag(self, tag: str) -> None:
        if tag in ("th", "td"):
            self._place = ""

    def handle_data(self, data: str) -> None:
        if self.lasttag in ("style", "script") or not data.strip():
            return
        self.words.append(data.strip())
        if self._place == "col":
            self._columns.append(data)
        elif self._place == "row" and not self._row[0]:
            self._row[0] = data.strip()
        elif self._place == "td":
            list(self.cells.values())[-1].words.append(data.strip())

    @property
    def text(self) -> str:
        return "\n".join(self.words)

    def networked(self) -> list[tuple[str, str, str]]:
        return [
            each
            for each in self.attributes
            if each[1] in NETWORKED
            or (each[1] in ("href", "xlink:href") and not each[2].startswith("#"))
            or each[1].startswith("on")
            or each[1] == "style"
        ]
