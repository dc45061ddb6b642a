"""Translate Java's regular expressions to Python's, if Python can express their meaning.

Mapping rules for principals are written for Java. A pattern that Python reads differently could give one
client another's name, so any construct not known to be the same is an error.
"""

from __future__ import annotations

import re
from typing import Final

LINE_END: Final = "\\n\\r\\u0085\\u2028\\u2029"
BEFORE_LAST_LINE_END: Final = f"(?=(?:\\r\\n|[{LINE_END}])?\\Z)"
"""Python pattern for Java's `$` and `\\Z`: the end of the text, or the position before a last line end."""

_OUTSIDE: Final = re.compile(
    r"""
      \\Q(?P<quoted>.*?)(?:\\E|\Z)
    | (?P<same>\\[dDwWsSbBAtnrfa] | \\x[0-9a-fA-F]{2} | \\u[0-9a-fA-F]{4} | \\[1-9](?![0-9]) | \\[^a-zA-Z0-9]
        | \(\?(?::|=|!|<=|<!|>|i:|-i:) | \((?!\?)
        | [*+?|)^\]}]
        | \{[0-9]+(?:,[0-9]*)?\})
    | \(\?<(?P<group>[a-zA-Z][a-zA-Z0-9]*)>
    | (?P<end>\$|\\Z)
    | (?P<very_end>\\z)
    | (?P<dot>\.)
    | (?P<set>\[)
    | (?P<literal>[^\\(){}\[])
    """,
    re.VERBOSE | re.DOTALL,
)
_INSIDE: Final = re.compile(
    r"""
      (?P<same>\\[dDwWsStnrfa] | \\x[0-9a-fA-F]{2} | \\u[0-9a-fA-F]{4} | \\[^a-zA-Z0-9])
    | (?P<bad>\[ | && | --)
    | (?P<close>\])
    | (?P<literal>[^\\])
    """,
    re.VERBOSE | re.DOTALL,
)


def translate(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of java.util.regex. Raises ValueError that says what is wrong, or not supported."""
    flags = re.ASCII
    start = 0
    if pattern.startswith("(?i)"):
        flags, start = flags | re.IGNORECASE, 4
    parts: list[str] = []
    while start < len(pattern):
        match = _OUTSIDE.match(pattern, start)
        if match is None:
            raise _unsupported(pattern, start)
        start = match.end()
        if match["set"]:
            part, start = _character_class(pattern, start)
            parts.append(part)
        else:
            parts.append(_outside(match))
    try:
        return re.compile("".join(parts), flags)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the pattern {pattern!r} is not valid: {error}") from None


def _outside(match: re.Match[str]) -> str:
    if match["quoted"] is not None:
        return re.escape(match["quoted"])
    if match["group"]:
        return f"(?P<{match['group']}>"
    if match["end"]:
        return BEFORE_LAST_LINE_END
    if match["very_end"]:
        return "\\Z"
    if match["dot"]:
        return f"[^{LINE_END}]"
    return match["same"] or match["literal"]


def _character_class(pattern: str, start: int) -> tuple[str, int]:
    """Translate the character class whose `[` ends at offset `start` of Java's pattern. Return the class for
    Python, and the offset behind its `]`. Raises ValueError.
    """
    negated = pattern.startswith("^", start)
    first = start = start + negated
    parts = ["[^" if negated else "["]
    while True:
        match = _INSIDE.match(pattern, start)
        if match is None or match["bad"] or (match["close"] and start == first):
            raise _unsupported(pattern, start)
        start = match.end()
        if match["close"]:
            return "".join([*parts, "]"]), start
        literal = match["literal"]
        parts.append(f"\\{literal}" if literal and literal in "&~|" else match[0])


def _unsupported(pattern: str, position: int) -> ValueError:
    rest = pattern[position : position + 8]
    said = f"{rest!r} at {position}" if rest else "its end"
    return ValueError(
        f"the pattern {pattern!r} is not valid, or uses what Weir does not translate: see {said}"
    )
