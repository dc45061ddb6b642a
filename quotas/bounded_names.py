"""The names under which a limiter is known: no name that clients give makes memory grow without bound.

Names that the quota table gives are few, and kept unchanged: prefixes and topics always. A default quota
applies to any name that a client gives. Of a long one only its start and its digest are kept. Where a
registry of limiters is full, all newcomers of a user share the overflow limiter of this user.
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
"""The client-id, or address, of an overflow limiter. A client of this name is known by another one."""
EMPTY: Final = "<empty>"
"""The name of a client without a client-id, where default quotas are to apply to it. A client that calls
itself so shares the limiter of those without a client-id.
"""

_DIGEST_CHARS: Final = 64


def is_bounded(user: str, client_id: str) -> bool:
    """Return True if both names are kept unchanged, whether or not the quota table gives them."""
    return len(user) <= NAME_CHARS_MAX and len(client_id) <= NAME_CHARS_MAX and client_id != OVERFLOW


def bounded_tags(tags: Tags, named: Tags) -> Tags:
    """Return `tags` with long names shortened; never the same for two different clients.

    `named` has the names in `tags` that the quota table gives.
    """
    return tags._replace(
        user=named.user or shortened(tags.user), client_id=named.client_id or shortened(tags.client_id)
    )


def overflow_tags(tags: Tags, named: Tags, user: str) -> Tags:
    """Return the tags of the overflow limiter of `user` for clients that draw on a limiter of these tags; the
    same as `tags` if these have no client-id, or one that the quota table gives.

    `named` has the names in `tags` that the quota table gives.
    """
    if named.client_id or not tags.client_id:
        return tags
    return tags._replace(user=shortened(user), client_id=OVERFLOW)


def shortened(name: str) -> str:
    """Return a long name as its start and its SHA-256. No other name has the same short form: that is itself
    one character longer than any name that is left as it is.

    >>> len(shortened("x" * 255)), len(shortened("x" * 256)), len(shortened("x" * 30_000))
    (255, 256, 256)
    """
    if len(name) <= NAME_CHARS_MAX and name != OVERFLOW:
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: NAME_CHARS_MAX - _DIGEST_CHARS]}~{digest}"
