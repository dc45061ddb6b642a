"""The brokers of bootstrap connections: which broker the next one goes to.

A worker cannot give a client to another broker, because that broker may belong to another worker. So the
supervisor tries to reach a broker before it gives clients to the broker's worker. Clients that come within
`VALID_S` share the result: brokers see at most one such attempt a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import trio

from weir.proxy.server.establish import Connector
from weir.proxy.server.refusals import RefusalError
from weir.proxy.server.target import BOOTSTRAP, Target

VALID_S: Final = 1.0
"""Time (s) for which a broker that was reached counts as reachable."""
FAILED_S: Final = 0.25
"""Time (s) for which the result holds that no broker can be reached: for the clients that have waited for it.
"""


class _Result(NamedTuple):
    """The result of an attempt."""

    found: Target | RefusalError
    """The broker that was reached, or the reason why none was."""
    rank: int
    """Rank of the broker when it was reached."""
    at_s: float


class BootstrapBrokers:
    """Chooses the brokers of bootstrap connections."""

    def __init__(
        self, connector: Connector, is_up: Callable[[int], bool], has_worker: Callable[[int], bool]
    ) -> None:
        """Begin without a result. `is_up` tells if a broker is up as far as Weir knows, and `has_worker` if
        its worker runs, both by node id.
        """
        self._connector = connector
        self._is_up = is_up
        self._has_worker = has_worker
        self._turn = trio.Lock()
        self._latest: _Result | None = None

    async def node_id(self) -> int | None:
        """Return the broker of the next bootstrap connection; None if no broker is known. Raises
        RefusalError if none can be reached within `connect_timeout_s`.
        """
        async with self._turn:
            found = self._valid() or await self._look()
        if isinstance(found, RefusalError):
            raise RefusalError(found.reason, str(found), found.hold_s)
        return found.node_id

    async def _look(self) -> Target | RefusalError:
        """Try to reach the known brokers, one after another; return the first that can be reached, or
        BOOTSTRAP if none is known.
        """
        addresses = self._connector.addresses(BOOTSTRAP)
        known = [(address, target) for address, target in addresses if target != BOOTSTRAP]
        if not known:
            return BOOTSTRAP
        known.sort(key=lambda each: self._rank(each[1]))
        try:
            found: Target | RefusalError = await self._connector.reach(known)
        except RefusalError as refusal:
            found = refusal
        self._latest = _Result(found, self._rank(found), trio.current_time())
        return found

    def _valid(self) -> Target | RefusalError | None:
        """Return the latest result; None if it holds no more."""
        latest = self._latest
        if latest is None:
            return None
        valid_s = FAILED_S if isinstance(latest.found, RefusalError) else VALID_S
        if trio.current_time() - latest.at_s >= valid_s:
            return None
        return latest.found if self._rank(latest.found) <= latest.rank else None

    def _rank(self, target: Target | RefusalError) -> int:
        """Return the smallest number for the brokers to try first: they are up, and their workers run."""
        if isinstance(target, RefusalError) or target.node_id is None:
            return 0
        return 2 * (not self._is_up(target.node_id)) + (not self._has_worker(target.node_id))
