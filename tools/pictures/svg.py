"""Parts of an SVG chart: the page with its colours, text, lines and bars."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 760
MARGIN: Final = 24
_FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)

_STYLE: Final = """\
text { font: 13px -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #1f2328; }
.title { font-size: 16px; font-weight: 600; }
.small { font-size: 12px; }
.muted { fill: #59636e; }
.card { fill: #ffffff; stroke: #d1d9e0; }
.grid { stroke: #d1d9e0; }
.mark { stroke: #59636e; stroke-dasharray: 4 3; }
.c0 { fill: #8c959f; } .c1 { fill: #d4790e; } .c2 { fill: #54a3f0; } .c3 { fill: #0b5cad; }
.area { fill: #54a3f0; opacity: 0.3; }
.line { fill: none; stroke: #0b5cad; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.muted { fill: #9198a1; }
.card { fill: #0d1117; stroke: #3d444d; }
.grid { stroke: #3d444d; }
.mark { stroke: #9198a1; }
.c0 { fill: #7d8590; } .c1 { fill: #e8923a; } .c2 { fill: #388bfd; } .c3 { fill: #a5d2ff; }
.line { stroke: #79b8ff; }
}"""
"""Classes c0 to c3 are the colours of four series. They differ in lightness too."""


def page(height: int, title: str, body: Iterable[str], footnote: str) -> str:
    """Return an SVG of `WIDTH` by `height` pixels with a title above its body, and a footnote below."""
    size = f'width="{WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        text(MARGIN, 34, title, "title"),
        *body,
        text(MARGIN, height - 16, footnote, "small muted"),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    """Return a text that begins, ends or is centred at `x`, with its baseline at `y`. `kind` has classes."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Return a straight line."""
    return f'<path class="{kind}" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>'


def bar(x: float, y: float, width: float, height: float, kind: str) -> str:
    """Return a rectangle of at least one pixel's width."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{max(width, 1):.1f}" height="{height:g}"/>'


def without_fonts(picture: str) -> str:
    """Remove the fonts that a picture of rich loads from a server. The picture has the length of each text,
    so columns stay aligned in any font.
    """
    return "\n".join(line.rstrip() for line in _FONT.sub("", picture).splitlines()) + "\n"
