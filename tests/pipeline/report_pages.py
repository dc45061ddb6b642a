"""Parse the report's HTML for its tests."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final

EMPTY: Final = frozenset({"input", "meta"})
HOSTILE: Final = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "<b>bold</b><br>x",
    '<a href="javascript:alert(1)">click</a>',
    "quote\"'s",
    "\u202eevil\u202c",
    "a & b &lt;i&gt;",
    "%{customdata[0]} $x^2$",
    "<!--",
    "line\nbreak\ttab\x00nul",
)
"""Client-ids of a malicious client."""


class Page(HTMLParser):
    """The elements, text and scripts of a page. Raises AssertionError if elements are not properly nested."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.comments: list[str] = []
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self._open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        opened, _ = self._open.pop()
        assert opened == tag, f"</{tag}> closes <{opened}>"

    def handle_data(self, data: str) -> None:
        tag, _ = self._open[-1] if self._open else ("", {})
        if tag == "script":
            self.scripts.append(data)
        elif tag == "style":
            self.styles.append(data)
        else:
            self.text += data

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def names(self) -> set[str]:
        return {name for name, _ in self.elements}

    def policy(self) -> str:
        (policy,) = (
            attributes["content"]
            for _, attributes in self.elements
            if attributes.get("http-equiv") == "Content-Security-Policy"
        )
        assert policy is not None
        return policy
