"""Under which names a budget is remembered, so that nothing a client names makes memory grow without bound.

Names that the quota table gives are few, and kept as they are: prefixes and topics always. A default quota
applies to whatever name a client gives: of a long one only its start and its digest are kept, and when there
is no room for one budget more, all that come without one share the budget of `OVERFLOW`.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quotas.entities import Tags

NAME_CHARS_MAX: Final = 255
"""Longer names are shortened. Names that people give are shorter (Kafka allows a topic 249 characters); a
client-id may have 32,767 bytes.
"""
OVERFLOW: Final = "<others>"
EMPTY: Final = "<empty>"
"""What a client without a client-id is taken to be called, where default quotas are to apply to it. Whoever
calls himself so shares its budget, and nothing else.
"""

_DIGEST_CHARS: Final = 64


def is_long(user: str, client_id: str) -> bool:
    """Whether a name must be shortened, unless the quota table gives it."""
    return len(user) > NAME_CHARS_MAX or len(client_id) > NAME_CHARS_MAX


def bounded_tags(tags: Tags, named: Tags) -> Tags:
    """Whose budget it is, with long names shortened; never the same for two different clients.

    `named` are those of the names in `tags` that the quota table gives.
    """
    return tags._replace(
        user=named.user or shortened(tags.user), client_id=named.client_id or shortened(tags.client_id)
    )


def overflow_tags(tags: Tags, named: Tags) -> Tags:
    """Whose budget it is if there is no room for one more: one for all that the same entry of the quota table
    applies to. The same as `tags` if that entry gives all names itself.
    """
    return tags._replace(
        user=named.user or (tags.user and OVERFLOW),
        client_id=named.client_id or (tags.client_id and OVERFLOW),
    )


def shortened(name: str) -> str:
    """Return a long name as its start and its SHA-256. No other name has the same short form: that is itself
    one character longer than any name that is left as it is.

    >>> len(shortened("x" * 255)), len(shortened("x" * 256)), len(shortened("x" * 30_000))
    (255, 256, 256)
    """
    if len(name) <= NAME_CHARS_MAX:
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: NAME_CHARS_MAX - _DIGEST_CHARS]}~{digest}"
