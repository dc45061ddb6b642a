"""Format names of entities for the page so that all their characters are visible.

Clients choose their names freely. Invisible characters, and characters that reorder text, become escapes;
long names are cut in the middle. Words of Weir in place of a name, such as `(empty)`, are in italics, so that
no client can imitate them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

SHORT: Final = 38
"""Maximum length (characters) of a label in a table or sentence."""
LONG: Final = 1000
"""Maximum length (characters) of a name outside labels: Kafka allows 32,767 bytes."""
_SHORTEST: Final = 6
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp", "Zs"})
_BY_CLIENT: Final = Markup("<bdi>{}</bdi>")
_BY_WEIR: Final = Markup("<i>{}</i>")
_Span = tuple[Markup, str]
"""Piece of a label: its element, `_BY_CLIENT` or `_BY_WEIR`, and its text."""


class ReportEntity(NamedTuple):
    """An entity in the report. None as user or client-id stands for all users or client-ids."""

    user: str | None
    client_id: str | None
    client_id_prefix: str | None = None
    """Prefix of the client-ids that the entity covers, in place of one client-id; None without a prefix."""


def label(entity: ReportEntity, room: int = LONG) -> Markup:
    """Return the name of an entity as HTML, shortened to about `room` characters.

    >>> print(label(ReportEntity("alice", "")))
    <bdi>alice</bdi><i> / </i><i>(empty)</i>
    """
    user = [] if entity.user is None else [_name(entity.user)]
    client_id = [] if entity.client_id is None else [_name(entity.client_id)]
    if entity.client_id_prefix is not None:
        client_id = [_name(entity.client_id_prefix), (_BY_WEIR, "*")]
    if user and client_id:
        return _html([*user, (_BY_WEIR, " / "), *client_id], room)
    kind = "user " if user else "client-id " if client_id else "everyone"
    return _html([(_BY_WEIR, kind), *user, *client_id], room)


def named(text: str) -> Markup:
    """Return a text that Weir did not choose, such as a file name or a reason, as HTML."""
    return _html([_name(text)], LONG)


def visible(text: str) -> str:
    """Return the text with escapes for characters that are invisible or change the display of others.

    >>> visible("a\\u202eb\\n")
    'a\\\\u202eb\\\\n'
    """
    return "".join(
        char.encode("unicode_escape").decode("ascii")
        if char != " " and unicodedata.category(char) in _HIDDEN
        else char
        for char in text
    )


def shorten(text: str, room: int) -> str:
    """Shorten a text by leaving out its middle, because the ends of names tell most.

    >>> shorten("connector-orders-to-warehouse-0007", 20)
    'connector-or…se-0007'
    """
    if len(text) <= room:
        return text
    tail = (room - 1) * 2 // 5
    return f"{text[: room - 1 - tail]}…{text[len(text) - tail :]}"


def _name(text: str) -> _Span:
    return (_BY_CLIENT, visible(text)) if text else (_BY_WEIR, "(empty)")


def _html(spans: Sequence[_Span], room: int) -> Markup:
    """Return the pieces as HTML, with names (at most two) shortened so that all have about `room` characters.
    A short name leaves its unused room to the other.
    """
    lengths = [len(text) for element, text in spans if element is _BY_CLIENT] or [0]
    left = room - sum(len(text) for element, text in spans if element is _BY_WEIR)
    most = max(left // len(lengths), left - min(lengths), _SHORTEST)
    return Markup("").join(
        element.format(shorten(text, most) if element is _BY_CLIENT else text) for element, text in spans
    )
