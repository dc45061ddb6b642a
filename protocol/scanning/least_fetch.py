"""Changes a fetch request so that the broker answers at once, with as few records as possible.

A fetch of a consumer over its quota must still reach the broker: an incremental fetch (KIP-227) tells the
broker's fetch session which partitions and offsets have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Final, TypeAlias

from weir.protocol.messages import FetchRequest
from weir.protocol.scanning.field_offsets import field_offset

AskLeast: TypeAlias = Callable[[bytearray, int, int, bool], bool]
"""Function (data, body, end, complete) that changes the fields of a fetch request in place. Returns True if
the request was changed; False, without any change, if more bytes of the request must arrive first.

Parameters and errors are those of `field_offsets.FieldOffset.locate`. The length of the request stays the
same.
"""

_LEAST: Final = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1}
"""Field of a fetch request → value that `ask_least` writes to it. These fields follow each other, behind
fields of fixed size. With `max_bytes` 1 a broker returns one batch at most (KIP-74). Versions before 3 lack
`max_bytes`, so that only `partition_max_bytes` limits the response.
"""


@cache
def ask_least(version: int) -> AskLeast:
    """Return the function that changes fetch requests of this version (cached). Raises ValueError if the
    schemas lack the version.
    """
    found = [offset for name in _LEAST if (offset := field_offset(FetchRequest, version, name))]
    values, least = tuple(_LEAST.values())[: len(found)], Struct(f">{len(found)}i")
    start, last = found[0].fixed_offset, found[-1]
    if start is None or last.fixed_offset != start + least.size - last.size:
        raise AssertionError("the fields follow each other")
    stop = start + least.size

    def patch(data: bytearray, body: int, end: int, complete: bool) -> bool:
        if body + stop > end:
            last.locate(data, body, end, complete)  # raises if no more bytes will come
            return False
        least.pack_into(data, body + start, *values)
        return True

    return patch
