"""Create topics through Weir under a mutation quota."""

from __future__ import annotations

from typing import Final

from tests.integration.mutable import SMALL, burst
from tests.mutations.client import ask_once
from tests.mutations.requests import Create, Topic
from tests.raw import Address
from weir.protocol.error_codes import ErrorCode

APP: Final = "app"
NEVER: Final = 0.001
"""A quota under which no token comes back while a test runs; 5000 samples of it are a burst of 5."""
FIVE: Final = burst(5000)
OK, REFUSED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED
CREATE, GROW, DELETE = 6, 3, 5
"""The first versions that know error 89."""


def create(address: Address, name: str, partitions: int, client_id: str = APP) -> int:
    request = Create((Topic(name, partitions, configs=SMALL),), version=CREATE)
    (code,) = ask_once(address, client_id, request).error_codes
    return code
