"""Run a case (scripts on several connections), and pair the requests of each client with the request time
that the broker measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.request_time.calls import Script
from bench.request_time.features import Features, Tally, difference
from bench.request_time.loop import Loop
from bench.request_time.truth import Truth
from weir.calibration.frames import error_codes, kafka_name
from weir.protocol import ErrorCode
from weir.quotas.costs.request_costs import ColdCost

EXPECTED: Final = frozenset(
    {
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""Error codes that are no failure: those that a correct client of groups and transactions meets now and then,
and the answer to a query for a missing group.
"""
_SETTLE_S: Final = 0.05
"""Time (s) to wait before reading the broker's figures, because a broker adds a request's cost after it has
sent the response.
"""


@dataclass(frozen=True, slots=True)
class Case:
    """Scripts that run at the same time, each on a connection of its own."""

    name: str
    scripts: Callable[[], Sequence[Script]]
    """Function that returns the scripts, one per connection."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Requests of one API of one client during a measurement, with the request time (µs) that the broker
    measured.
    """

    case: str
    client: str
    api: str
    done: Features
    truth_us: float
    seconds: float
    errors: tuple[str, ...] = ()
    """Names of the error codes in the latest response, without `EXPECTED`."""
    charged_us: float = 0.0
    """Request time (µs) that Weir charged; 0 if the case ran directly at the broker."""

    @property
    def requests(self) -> float:
        """Number of answered requests."""
        return self.done.get("us", 0.0)


def observe(
    case: Case,
    address: tuple[str, int],
    truth: Truth,
    cold: ColdCost,
    *,
    warm_up_s: float,
    seconds: float,
    charged_us: Callable[[], Mapping[str, float]] = dict,
) -> list[Observation]:
    """Run a case for `warm_up_s`, then measure it for `seconds`. `charged_us` returns the request time (µs)
    that Weir has charged so far, by client-id.

    Raises LoopError, TruthError, OSError.
    """
    tally = Tally(cold)
    began_s = time.monotonic()
    loop = Loop(address, case.scripts(), tally)
    try:
        loop.run(warm_up_s)
        before, used_before = tally.copy(), _read(truth, tally, began_s)
        charged_before = charged_us()
        counted_s = time.monotonic()
        loop.run(seconds)
        counted_s = time.monotonic() - counted_s
        used, charged = _read(truth, tally, began_s), charged_us()
    finally:
        loop.close()
    return [
        Observation(
            case.name,
            client_id.rpartition(".")[0],
            kafka_name(tally.last[client_id][0].api),
            difference(done, before.get(client_id, {})),
            used[client_id] - used_before.get(client_id, 0.0),
            counted_s,
            errors_in(tally, client_id),
            charged.get(client_id, 0.0) - charged_before.get(client_id, 0.0),
        )
        for client_id, done in tally.copy().items()
    ]


def _read(truth: Truth, tally: Tally, began_s: float) -> dict[str, float]:
    for client_id in tally.done:
        truth.begin(client_id, began_s)
    time.sleep(_SETTLE_S)
    return truth.read()


def errors_in(tally: Tally, client_id: str) -> tuple[str, ...]:
    """Return the names of the error codes in a client-id's latest response, without `EXPECTED`."""
    call, frame = tally.last[client_id]
    codes = error_codes(call.response(frame)) - EXPECTED
    return tuple(sorted(ErrorCode(code).name for code in codes))
