"""Canonical forms of names: users as in Kafka's metric tags and in ZooKeeper (Kafka's `Sanitizer`), and IP
addresses.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from urllib.parse import quote


def sanitize(name: str) -> str:
    """Percent-encode `name` as UTF-8; only ASCII letters, digits, `.`, `-` and `_` stay.

    >>> sanitize("CN=a,O=b c"), sanitize("~*")
    ('CN%3Da%2CO%3Db%20c', '%7E%2A')
    """
    return quote(name, safe="", errors="replace").replace("~", "%7E")


def canonical_ip(address: str) -> str:
    """Return an address in its canonical form (RFC 5952); an IPv4-mapped IPv6 address becomes IPv4. Raises
    ValueError if `address` is no IP address.

    >>> canonical_ip("2001:DB8:0::1"), canonical_ip("::ffff:10.0.0.1"), canonical_ip("10.0.0.1")
    ('2001:db8::1', '10.0.0.1', '10.0.0.1')
    """
    parsed = ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return str(parsed if mapped is None else mapped)
