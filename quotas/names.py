"""Names of users as Kafka shows them in metric tags and stores them in ZooKeeper (`Sanitizer`)."""

from __future__ import annotations

from urllib.parse import quote


def sanitize(name: str) -> str:
    """Percent-encode `name` as UTF-8; only ASCII letters, digits, `.`, `-` and `_` stay.

    >>> sanitize("CN=a,O=b c"), sanitize("~*")
    ('CN%3Da%2CO%3Db%20c', '%7E%2A')
    """
    return quote(name, safe="", errors="replace").replace("~", "%7E")
