"""Waits for a group's coordinator."""

from __future__ import annotations

import time
from typing import Final

from tests.raw import Address, ask
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.1


def await_coordinator(address: Address, group: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    wanted = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    while ask(address, wanted, FindCoordinatorResponse, 4).coordinators[0].error_code != ErrorCode.NONE:
        assert time.monotonic() < deadline
        time.sleep(_POLL_S)
