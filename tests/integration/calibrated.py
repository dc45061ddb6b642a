"""What requests cost a broker, read from the broker's own request quota, as a file of costs for Weir.

A client-id is given a small quota and sends one request again and again until it is told to wait. By then
it has used what the quota allows in the window, and what the wait is for: quota · (window + throttle). The
window is what Kafka's Rate says: with two samples of a second, one second at first, and growing.

`weir calibrate` does the same more thoroughly, and takes a minute.
"""

from __future__ import annotations

import itertools
import time
from statistics import median
from typing import TYPE_CHECKING, Final

from tests.raw import set_quotas
from tests.wire.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.raw import Address, Request

    Build = Callable[[str, int], Request]
    """From a client-id and a size."""

WINDOW_NUM: Final = 2
SETTINGS: Final = {"quota.window.num": str(WINDOW_NUM), "log.retention.ms": "-1"}
"""Of a broker whose costs are read here. What one second allows is soon used up; and records that look old
are not deleted under the requests that are measured.
"""
READINGS: Final = 5
_REQUESTS: Final = 40
"""About how many to use for a reading."""
_PAUSE_S: Final = 0.001
_GUESS_US: Final = 200.0
_ONE_WINDOW_S: Final = 0.95
"""In which a reading must be done."""
_KNOWN_S: Final = 0.05
"""Until a quota that was set is in force."""
_PERCENT_US: Final = 10_000.0
"""A percent of a thread, in µs per second."""
_NUMBERS: Final = itertools.count(1)


def costs_file(address: Address, builds: Mapping[str, Build], sizes: Sequence[int]) -> str:
    """What Weir takes as `request_costs`; `builds` has a request by Kafka's name of its API, `sizes` the
    smallest and the largest.

    Who is held back sends its requests with gaps between, and these cost two or three times what they do in a
    rush: the more, the larger they are. So they are measured with pauses, and nothing is added for the cold.
    """
    lines = ["[cold]\nus = 0.0\nfrom_us = 300.0\nfull_us = 1500.0\n"]
    for api, build in builds.items():
        few_us, many_us = (cost_us(address, build, size) for size in sizes)
        few_kb, many_kb = (len(build("reading-00", size).frame) / 1000 for size in sizes)
        per_kb = max(0.0, many_us - few_us) / (many_kb - few_kb)
        us = max(0.0, few_us - per_kb * few_kb)
        lines.append(f"[apis.{api}]\nus = {us:.1f}\nus_per_request_kb = {per_kb:.1f}\n")
    return "\n".join(lines)


def cost_us(address: Address, build: Build, size: int) -> float:
    """What one of these requests costs this broker, in µs."""
    found, guess_us = list[float](), _GUESS_US
    while len(found) <= READINGS:
        reading_us = _reading_us(address, build, size, guess_us * _REQUESTS / _PERCENT_US)
        guess_us = guess_us / 2 if reading_us is None else reading_us
        found += [] if reading_us is None else [reading_us]
    return median(found[1:])


def _reading_us(address: Address, build: Build, size: int, percent: float) -> float | None:
    """None if the quota was too large."""
    client_id = f"reading-{next(_NUMBERS)}"
    set_quotas(address, {client_id: {"request_percentage": percent}})
    time.sleep(_KNOWN_S)  # the broker does not say when
    request = build(client_id, size)
    with Connection(address) as connection:
        began, elapsed_s, sent = time.monotonic(), 0.0, 0
        while elapsed_s < _ONE_WINDOW_S:
            told = request.outcome(connection.exchange(request.frame))
            elapsed_s, sent = time.monotonic() - began, sent + 1
            if told.throttle_ms > 0:
                return percent * _PERCENT_US * (1.0 + elapsed_s + told.throttle_ms / 1000) / sent
            time.sleep(_PAUSE_S)  # the pace of the load
    return None
