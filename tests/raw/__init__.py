"""Clients of ours over plain sockets: what a quota does to those that obey it and to those that do not.

`requests.py` builds the frames and reads the responses, `client.py` sends them again and again, `rates.py`
says how fast that went.
"""

from tests.raw.client import Answer, Behaviour, Pace, RawClient, RawClientError, drive
from tests.raw.requests import (
    NEW,
    OLD,
    BrokerVersions,
    Request,
    ask,
    broker_versions_of,
    fetch,
    fill,
    leaders,
    produce,
    set_quotas,
)
from tests.wire.connection import Address

__all__ = [
    "NEW",
    "OLD",
    "Address",
    "Answer",
    "Behaviour",
    "BrokerVersions",
    "Pace",
    "RawClient",
    "RawClientError",
    "Request",
    "ask",
    "broker_versions_of",
    "drive",
    "fetch",
    "fill",
    "leaders",
    "produce",
    "set_quotas",
]
