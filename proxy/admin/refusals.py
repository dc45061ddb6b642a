"""Requests to the admin endpoint without permission: counted, and wrong tokens logged and delayed.

Only the response to a wrong token is delayed. A request with the right token never waits, because behind an
ingress all clients have one address. A delayed request has no place (`places`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import structlog
import trio
from prometheus_client.core import Metric

from weir.proxy.admin.exposition import WEIR
from weir.proxy.logs import Note

log = structlog.get_logger("weir.admin")

Reason: TypeAlias = Literal["wrong_token", "no_token", "host"]
REASONS: Final[tuple[Reason, ...]] = ("wrong_token", "no_token", "host")
FIRST_DELAY_S: Final = 0.25
"""Delay (s) of the response to an address's first wrong token; doubled by each further one."""
DELAY_S_MAX: Final = 5.0
FORGET_S: Final = 60.0
"""Time (s) after its latest wrong token after which an address is forgotten."""
ADDRESSES_MAX: Final = 1000
"""Maximum number of remembered addresses; a further one replaces the one whose wrong token is the oldest."""


class WrongTokens:
    """Number of recent wrong tokens by address of the client."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[int, float]] = {}
        """Number of wrong tokens and time (s) of the latest one, the oldest first."""

    def delay_s(self, address: str, now_s: float) -> float:
        """Count a wrong token, and return the time (s) by which to delay its response."""
        number, at_s = self._latest.pop(address, (0, -math.inf))
        if now_s - at_s > FORGET_S:
            number = 0
        if len(self._latest) >= ADDRESSES_MAX:
            del self._latest[next(iter(self._latest))]
        self._latest[address] = number + 1, now_s
        return min(math.ldexp(FIRST_DELAY_S, min(number, 100)), DELAY_S_MAX)


class Refusals:
    """Counts refused requests by reason; logs and delays those with a wrong token."""

    def __init__(self, counts: Counter[str], note: Note) -> None:
        """Count in `counts`. `note` is `RateLimitedLog.note`."""
        self._counts = counts
        self._note = note
        self._wrong_tokens = WrongTokens()

    async def add(self, reason: Reason, client: tuple[str, int] | None) -> None:
        """Count a refused request; return when it may be answered."""
        self._counts[reason] += 1
        if reason == "wrong_token":
            host, port = client or ("", 0)
            self._note("wrong admin token", _log, {"client": f"{host}:{port}"})
            await trio.sleep(self._wrong_tokens.delay_s(host, trio.current_time()))


def family(counts: Counter[str]) -> Metric:
    """Return the metric of the refused requests."""
    return WEIR.counter(
        "admin_requests_refused",
        "Unauthorized requests to the admin endpoint.",
        [((reason,), counts[reason]) for reason in REASONS],
        "reason",
    )


def _log(count: int, details: Mapping[str, object]) -> None:
    log.warning("wrong admin token", count=count, **details)
