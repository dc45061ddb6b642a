"""Format names of entities for the page so that all their characters are visible.

Clients choose their names freely. Invisible characters, and characters that reorder text, become escapes;
long names are cut in the middle. Words of Weir in place of a name, such as `(empty)`, are in italics, so that
no client can imitate them.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Final, NamedTuple

from markupsafe import Markup

SHORT: Final = 38
"""Maximum length (characters) of a label in a table or sentence."""
LONG: Final = 1000
"""Maximum length (characters) of a name outside labels: Kafka allows 32,767 bytes."""
_SHORTEST: Final = 6
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp", "Zs"})


class Span(NamedTuple):
    """A piece of a label: text that a client chose, such as a name, or text of Weir."""

    text: str
    ours: bool = False
    """True if the text is Weir's; False if a client chose it."""


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity in the report. None as user or client-id stands for all users or client-ids."""

    user: str | None
    client_id: str | None
    client_id_prefix: str | None = None
    """Prefix of the client-ids that the entity covers, in place of one client-id; None without a prefix."""


@dataclass(frozen=True, slots=True)
class Label:
    """Name of an entity."""

    spans: tuple[Span, ...]

    def page(self, room: int = LONG) -> Markup:
        """Return the name as HTML for the page, shortened to about `room` characters."""
        return Markup("").join(
            Markup("<i>{}</i>").format(text) if ours else Markup("<bdi>{}</bdi>").format(text)
            for text, ours in self._within(room)
        )

    def __str__(self) -> str:
        return "".join(span.text for span in self.spans)

    def _within(self, room: int) -> list[Span]:
        """Return the pieces of the label, with names shortened so that the label has about `room` characters.
        Short names leave their unused room to longer names.
        """
        left = room - sum(len(span.text) for span in self.spans if span.ours)
        names = sorted((len(span.text), place) for place, span in enumerate(self.spans) if not span.ours)
        result = list(self.spans)
        for index, (_, place) in enumerate(names):
            text = shorten(self.spans[place].text, max(left // (len(names) - index), _SHORTEST))
            result[place] = Span(text)
            left -= len(text)
        return result


def label(entity: Entity) -> Label:
    """Return the label of an entity.

    >>> print(label(Entity("alice", "")).page())
    <bdi>alice</bdi><i> / </i><i>(empty)</i>
    """
    user = [] if entity.user is None else [_name(entity.user)]
    client_id = [] if entity.client_id is None else [_name(entity.client_id)]
    if entity.client_id_prefix is not None:
        client_id = [_name(entity.client_id_prefix), Span("*", ours=True)]
    if user and client_id:
        return Label((*user, Span(" / ", ours=True), *client_id))
    if user:
        return Label((Span("user ", ours=True), *user))
    return Label((Span("client-id ", ours=True), *client_id)) if client_id else ours("everyone")


def ours(text: str) -> Label:
    """Return a label that shows a text of Weir, not a client's name, in italics."""
    return Label((Span(text, ours=True),))


def named(text: str) -> Label:
    """Return a label for a text that Weir did not choose, such as a candidate's file name or a reason."""
    return Label((_name(text),))


def visible(text: str) -> str:
    """Return the text with escapes for characters that are invisible or change the display of others.

    >>> visible("a\\u202eb\\n")
    'a\\\\u202eb\\\\n'
    """
    return "".join(_seen(character) for character in text)


def shorten(text: str, room: int) -> str:
    """Shorten a text by leaving out its middle, because the ends of names tell most.

    >>> shorten("connector-orders-to-warehouse-0007", 20)
    'connector-or…se-0007'
    """
    if len(text) <= room:
        return text
    tail = (room - 1) * 2 // 5
    return f"{text[: room - 1 - tail]}…{text[len(text) - tail :]}"


def _name(text: str) -> Span:
    return Span(visible(text)) if text else Span("(empty)", ours=True)


def _seen(character: str) -> str:
    if character == " " or unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape").decode("ascii")
