"""HTML that is escaped by construction: text is `str` and gets escaped, markup is `Html` and does not.

Names come from clients, who may send anything: markup, scripts, marks that turn the reading direction.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from dataclasses import dataclass
from typing import Final

_EMPTY_ELEMENTS: Final = frozenset({"meta"})


@dataclass(frozen=True, slots=True)
class Html:
    """Markup. Only this module makes it of strings."""

    text: str


def element(name: str, *content: str | Html, **attributes: str | bool) -> Html:
    """An element; text in it is escaped. `_` in attributes is `-`, one at the end is dropped.

    >>> element("p", "1 < 2", class_="a").text
    '<p class="a">1 &lt; 2</p>'
    """
    opening = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    if name in _EMPTY_ELEMENTS:
        return Html(opening)
    return Html(f"{opening}{join(*content).text}</{name}>")


def join(*content: str | Html) -> Html:
    """One after another; text is escaped."""
    return Html("".join(part.text if isinstance(part, Html) else html.escape(part) for part in content))


def _attribute(key: str, value: str | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    if isinstance(value, bool):
        return f" {name}" if value else ""
    return f' {name}="{html.escape(value)}"'


def json_block(id_: str, value: object) -> Html:
    """JSON for scripts to read. Nothing in it ends the element, whatever its strings say."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{html.escape(id_)}">{text}</script>')


def script(code: str) -> Html:
    """A script of ours. Raises ValueError if it holds what would end the element."""
    if "</script" in code.lower() or "<!--" in code or "\r" in code:
        raise ValueError("the script cannot stand in HTML as it is")
    return Html(f"<script>{code}</script>")


def style(rules: str) -> Html:
    """A style sheet of ours."""
    return Html(f"<style>{rules}</style>")


def hash_source(code: str) -> str:
    """What a Content-Security-Policy calls this script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"
