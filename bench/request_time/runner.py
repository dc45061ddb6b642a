"""Runs a case, which is a few scripts at once, and sets what it did beside what the broker counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.request_time.calls import Script
from bench.request_time.features import Features, Tally, difference
from bench.request_time.loop import Loop
from bench.request_time.truth import Truth
from calibration.frames import error_codes, kafka_name
from protocol import ErrorCode
from quotas.costs.request_costs import ColdCost

EXPECTED: Final = frozenset(
    {
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""What is answered now and then to those who do everything right, and to a question about no group."""
_SETTLE_S: Final = 0.05
"""A broker has sent a response before it has counted what that cost."""


@dataclass(frozen=True, slots=True)
class Case:
    """What runs at the same time."""

    name: str
    scripts: Callable[[], Sequence[Script]]
    """One per connection."""
    patience: float = 1.0
    """How many times as long as others it must run, because it does little in a second."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One API of one client while it was counted."""

    case: str
    client: str
    api: str
    done: Features
    truth_us: float
    seconds: float
    errors: tuple[str, ...] = ()
    """In the latest response."""
    charged_us: float = 0.0
    """What Weir has charged, if it stood in front."""

    @property
    def requests(self) -> float:
        """How many."""
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
    """Run a case for `warm_up_s`, then count for so long; `charged_us` is Weir's account by client-id.

    Raises LoopError, TruthError, OSError.
    """
    tally = Tally(cold)
    began_s = time.monotonic()
    loop = Loop(address, case.scripts(), tally)
    try:
        loop.run(warm_up_s * case.patience)
        before, used_before = tally.copy(), _read(truth, tally, began_s)
        charged_before = charged_us()
        counted_s = time.monotonic()
        loop.run(seconds * case.patience)
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
    """What the latest response complains of."""
    call, frame = tally.last[client_id]
    codes = error_codes(call.response(frame)) - EXPECTED
    return tuple(sorted(ErrorCode(code).name for code in codes))
