"""Make HTML that is escaped by construction: `str` is text and gets escaped, `Html` is markup and does
not.

Clients choose their names freely: names may contain markup, scripts, or characters that change the direction
of text.
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
    """A piece of markup. Only this module makes markup from strings."""

    text: str


def element(name: str, *content: str | Html, **attributes: str | bool) -> Html:
    """Return an element with escaped text. In attribute names `_` becomes `-`, and a final `_` is dropped;
    True gives an attribute without value.

    >>> element("p", "1 < 2", class_="a").text
    '<p class="a">1 &lt; 2</p>'
    """
    opening = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    if name in _EMPTY_ELEMENTS:
        return Html(opening)
    return Html(f"{opening}{join(*content).text}</{name}>")


def join(*content: str | Html) -> Html:
    """Join strings, which are escaped, and markup, which is not, into one piece of markup."""
    return Html("".join(part.text if isinstance(part, Html) else html.escape(part) for part in content))


def _attribute(key: str, value: str | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    if isinstance(value, bool):
        return f" {name}" if value else ""
    return f' {name}="{html.escape(value)}"'


def json_block(id_: str, value: object) -> Html:
    """Return a script element that contains `value` as JSON data for the page's scripts. Strings in it are
    escaped so that they cannot end the element.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{html.escape(id_)}">{text}</script>')


def script(code: str) -> Html:
    """Return a script element with `code`, which must be Weir's own. Raises ValueError if the code would end
    the element.
    """
    if "</script" in code.lower() or "<!--" in code or "\r" in code:
        raise ValueError("the script would end its HTML element")
    return Html(f"<script>{code}</script>")


def style(rules: str) -> Html:
    """Return a style element with the CSS `rules`, which must be Weir's own."""
    return Html(f"<style>{rules}</style>")


def hash_source(code: str) -> str:
    """Return the hash of the script `code` in the form with which a Content-Security-Policy allows the
    script.
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"
