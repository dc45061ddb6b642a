"""Bounds on the number and the length of the names under which limiters are kept.

Names in the quota table, among them all prefixes and topics, are few and are kept unchanged. A default quota
applies to any name that a client sends. Of a long name, Weir keeps only its start and its digest. When a
registry of limiters is full, all new clients of a user share the overflow limiter of that user.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from weir.quotas.table.entities import Tags

NAME_CHARS_MAX: Final = 255
"""Maximum number of characters in a name that is kept unchanged. Kafka allows 249 characters in a topic; a
client-id may have 32,767 bytes.
"""
OVERFLOW: Final = "<others>"
"""Client-id, or address, in the tags of an overflow limiter. A client that sends this client-id itself gets
other tags (`shortened`).
"""
EMPTY: Final = "<empty>"
"""Client-id that stands for an empty client-id if default quotas are to apply to such clients. A client that
sends this client-id itself shares their limiter.
"""

_DIGEST_CHARS: Final = 64


def is_bounded(user: str, client_id: str) -> bool:
    """Return True if a user and a client-id are short enough to be kept unchanged in any case, so that
    `bounded_tags` need not be called.
    """
    return len(user) <= NAME_CHARS_MAX and len(client_id) <= NAME_CHARS_MAX and client_id != OVERFLOW


def bounded_tags(tags: Tags, named: Tags) -> Tags:
    """Return the tags with long names shortened. Different clients get different tags.

    `named` has the names of `tags` that the quota table contains, "" for the others.
    """
    return tags._replace(
        user=named.user or shortened(tags.user), client_id=named.client_id or shortened(tags.client_id)
    )


def overflow_tags(tags: Tags, named: Tags, user: str) -> Tags:
    """Return the tags of the overflow limiter of `user` that replaces a limiter with `tags`. Equal to `tags`
    if they have no client-id, or one that the quota table contains.

    `named` has the names of `tags` that the quota table contains, "" for the others.
    """
    if named.client_id or not tags.client_id:
        return tags
    return tags._replace(user=shortened(user), client_id=OVERFLOW)


def shortened(name: str) -> str:
    """Return a name unchanged, or as its start and its SHA-256 if it is too long or equal to `OVERFLOW`. The
    form of a long name cannot equal an unchanged name, because it has one character more than
    `NAME_CHARS_MAX`.

    >>> len(shortened("x" * 255)), len(shortened("x" * 256)), len(shortened("x" * 30_000))
    (255, 256, 256)
    """
    if len(name) <= NAME_CHARS_MAX and name != OVERFLOW:
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: NAME_CHARS_MAX - _DIGEST_CHARS]}~{digest}"
