"""Bounds on the number and the length of the names under which budgets are kept.

Names in the quota table, among them all prefixes and topics, are few and are kept unchanged. A default quota
applies to any name that a client sends. Of a long name, Weir keeps only its start and its digest. When the
maximum number of budgets is reached, further clients share the budget of `OVERFLOW`.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quotas.entities import Tags

NAME_CHARS_MAX: Final = 255
"""Maximum number of characters in a name that is kept unchanged. Kafka allows 249 characters in a topic; a
client-id may have 32,767 bytes.
"""
OVERFLOW: Final = "<others>"
"""Name of the overflow entity: clients without a budget of their own, because too many exist."""
EMPTY: Final = "<empty>"
"""Client-id that stands for an empty client-id if default quotas are to apply to such clients. A client that
sends this client-id itself shares their budget; this has no other effect.
"""

_DIGEST_CHARS: Final = 64


def is_long(user: str, client_id: str) -> bool:
    """Return True if either name must be shortened, unless the quota table contains it."""
    return len(user) > NAME_CHARS_MAX or len(client_id) > NAME_CHARS_MAX


def bounded_tags(tags: Tags, named: Tags) -> Tags:
    """Return the tags with long names shortened. Different clients get different tags.

    `named` has the names of `tags` that the quota table contains, "" for the others.
    """
    return tags._replace(
        user=named.user or shortened(tags.user), client_id=named.client_id or shortened(tags.client_id)
    )


def overflow_tags(tags: Tags, named: Tags) -> Tags:
    """Return the tags of the overflow entity: all clients without a budget of their own to which the same
    entry of the quota table applies. Equal to `tags` if that entry contains all names.

    `named` has the names of `tags` that the quota table contains, "" for the others.
    """
    return tags._replace(
        user=named.user or (tags.user and OVERFLOW),
        client_id=named.client_id or (tags.client_id and OVERFLOW),
    )


def shortened(name: str) -> str:
    """Return a long name as its start and its SHA-256. The result cannot equal a name that is kept unchanged,
    because it is one character longer than `NAME_CHARS_MAX`.

    >>> len(shortened("x" * 255)), len(shortened("x" * 256)), len(shortened("x" * 30_000))
    (255, 256, 256)
    """
    if len(name) <= NAME_CHARS_MAX:
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: NAME_CHARS_MAX - _DIGEST_CHARS]}~{digest}"
