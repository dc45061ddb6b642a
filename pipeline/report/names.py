"""Names of entities, for pages and charts: what can be seen of them is all that is there.

Clients choose their names. Characters that cannot be seen, or move others about, are written as escapes;
long names are cut in the middle. What Weir itself says in a name's place, such as `(empty)`, is in italics,
so that no client can be called that.
"""

from __future__ import annotations

import html
import unicodedata
from dataclasses import dataclass
from typing import Final, NamedTuple

from pipeline.report.html import Html, element, join

WIDE: Final = 38
"""Characters of a label."""
NARROW: Final = 16
"""The same, on a telephone."""
LONG: Final = 1000
"""Characters of a name where there is room: Kafka allows 32,767 bytes."""
_SHORTEST: Final = 6
_LINE: Final = 70
"""Characters of a line in what pops up over a chart."""
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp", "Zs"})


class Span(NamedTuple):
    """A piece of a label."""

    text: str
    ours: bool = False
    """Said by Weir, not by a client."""


@dataclass(frozen=True, slots=True)
class Entity:
    """Whose use it is. None: of all users, or of all client-ids."""

    user: str | None
    client_id: str | None
    client_id_prefix: str | None = None
    """All client-ids that begin so, in place of one."""


@dataclass(frozen=True, slots=True)
class Label:
    """A name in the forms that are needed."""

    spans: tuple[Span, ...]

    def plot(self, room: int) -> str:
        """For plotly, which takes some HTML in labels; in about `room` characters."""
        return "".join(_marked(span, html.escape(span.text, quote=False)) for span in self._within(room))

    def hover(self) -> str:
        """For what pops up over a chart: the whole name, in lines."""
        return "".join(_marked(span, _lines(span.text)) for span in self._within(LONG))

    def page(self, room: int = LONG) -> Html:
        """For the page: the whole name, if there is room."""
        return join(*(element("i" if ours else "bdi", text) for text, ours in self._within(room)))

    def _within(self, room: int) -> list[Span]:
        """Names share the room; what a short one leaves is another's."""
        left = room - sum(len(span.text) for span in self.spans if span.ours)
        names = sorted((len(span.text), place) for place, span in enumerate(self.spans) if not span.ours)
        result = list(self.spans)
        for index, (_, place) in enumerate(names):
            text = shorten(self.spans[place].text, max(left // (len(names) - index), _SHORTEST))
            result[place] = Span(text)
            left -= len(text)
        return result


def label(entity: Entity) -> Label:
    """What an entity is called.

    >>> label(Entity("alice", "")).plot(40)
    'alice<i> / </i><i>(empty)</i>'
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
    """What Weir says in a name's place."""
    return Label((Span(text, ours=True),))


def named(text: str) -> Label:
    """Anything else that was named by somebody: a candidate's file, a reason."""
    return Label((_name(text),))


def visible(text: str) -> str:
    """The text with escapes in place of what cannot be seen, or changes how the rest is seen.

    >>> visible("a\\u202eb\\n")
    'a\\\\u202eb\\\\n'
    """
    return "".join(_seen(character) for character in text)


def shorten(text: str, room: int) -> str:
    """Leave out the middle: the ends of names tell more.

    >>> shorten("connector-orders-to-warehouse-0007", 20)
    'connector-or…se-0007'
    """
    if len(text) <= room:
        return text
    tail = (room - 1) * 2 // 5
    return f"{text[: room - 1 - tail]}…{text[len(text) - tail :]}"


def plot_text(text: str) -> str:
    """Any text, for plotly to show as it is: visible, and no markup."""
    return html.escape(visible(text), quote=False)


def _name(text: str) -> Span:
    return Span(visible(text)) if text else Span("(empty)", ours=True)


def _seen(character: str) -> str:
    if character == " " or unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape").decode("ascii")


def _marked(span: Span, escaped: str) -> str:
    return f"<i>{escaped}</i>" if span.ours else escaped


def _lines(text: str) -> str:
    pieces = (text[start : start + _LINE] for start in range(0, len(text), _LINE))
    return "<br>".join(html.escape(piece, quote=False) for piece in pieces)
