"""Texts of peers, made safe to show: on a terminal, in XML, and on a page."""

from __future__ import annotations

from typing import Final

SHOWN_MAX: Final = 300
"""Maximum number of characters shown of one text."""
MESSAGE_MAX: Final = 1000
"""Maximum number of characters shown of a message, which may contain texts of a peer."""


def visible(text: str, room: int = SHOWN_MAX) -> str:
    """Return a text with escapes for characters that are invisible, steer a terminal, or change the direction
    of others; cut to `room` characters.

    >>> visible("a\\u202eb\\n")
    'a\\\\u202eb\\\\n'
    """
    if not text.isprintable():
        text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return text if len(text) <= room else text[: room - 1] + "…"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: "1 frame", "2,000 frames"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: int) -> str:
    """Return a number of bytes in decimal units: "900 B", "1.2 MB"."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.1f} GB"


def ranges(numbers: list[int]) -> str:
    """Return distinct ascending numbers as versions: [1, 2, 3, 7] is "v1-v3, v7"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"v{low}" if low == high else f"v{low}-v{high}" for low, high in spans)
