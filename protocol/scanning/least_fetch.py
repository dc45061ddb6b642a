"""Change a fetch request so that the broker answers at once, with as few records as possible.

A fetch of a consumer over its quota must still reach the broker: an incremental fetch (KIP-227) tells the
broker's fetch session which partitions and offsets have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

from protocol.framing import INCOMPLETE
from protocol.messages import FetchRequest
from protocol.scanning.field_offsets import field_offset

AskLeast: TypeAlias = Callable[[bytearray, int, int, bool], bool]
"""(data, body, end, complete) -> True if the request was changed, False if more of its bytes are needed.

Arguments and ProtocolErrors are those of `field_offsets.FieldOffset.locate`. Either all fields are changed or
no byte is. The length stays the same.
"""

_LEAST: Final = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1}
"""With `max_bytes` 1 a broker returns one batch at most (KIP-74). Versions before 3 lack the field: there
only `partition_max_bytes` limits the response.
"""


@cache
def ask_least(version: int) -> AskLeast:
    """Return how to change fetch requests of this version (cached). Raises ValueError if the schemas
    lack it.
    """
    patches = tuple(
        (found, least)
        for name, least in _LEAST.items()
        if (found := field_offset(FetchRequest, version, name))
    )
    last, _least = patches[-1]

    def patch(data: bytearray, body: int, end: int, complete: bool) -> bool:
        if last.locate(data, body, end, complete) == INCOMPLETE:
            return False
        for found, least in patches:  # all are before `last`
            found.write(data, found.locate(data, body, end, complete), least)
        return True

    return patch
