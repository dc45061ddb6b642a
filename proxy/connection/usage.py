"""Count the usage of one connection's client, if usage is recorded (`Client.usage`)."""

from __future__ import annotations

from typing import Final

from weir.proxy.connection.usage_counters import ClientUsage, RequestTrace, UsageCounters
from weir.proxy.connection.usage_registry import UsageRegistry
from weir.usage.groups import GROUPS, ApiGroup

_NEVER: Final = -1
_OTHER: Final = GROUPS.index(ApiGroup.OTHER)
_SECURITY: Final = GROUPS.index(ApiGroup.SECURITY)
FORMER_MAX: Final = 16
"""Maximum number of former clients (principal and client-id) of a connection in `ConnectionUsage._former`. At
more, all are removed.
"""
_CORRELATION_ID: Final = 8
"""Offset (bytes) of the correlation id in a request, from its length."""


class ConnectionUsage:
    """Counts the usage of one connection's client. `become` changes the client, because one connection may
    change its principal and client-id.
    """

    __slots__ = (
        "_again",
        "_client",
        "_former",
        "_names",
        "_registry",
        "_seen",
        "at_hand",
        "connection",
    )

    def __init__(self, registry: UsageRegistry, connection: int) -> None:
        """Begin without a client. `connection` is the connection's number in traces."""
        self._registry = registry
        self.connection = connection
        self._client: ClientUsage | None = None
        self._seen: list[int] = []
        """Number of the interval (between two drains of the usage counters) in which this connection was last
        counted as active, by API group; `_NEVER` before the first count.
        """
        self._former: dict[ClientUsage, list[int]] = {}
        """Values of `_seen` for former clients of this connection, so that a connection that alternates
        between two clients is counted only once per client and interval.
        """
        self._names = ("", "")
        self._again: UsageCounters | None = None
        """Usage counters kept for a request until Weir decides about it again, after a query; None if no such
        request waits.
        """
        self.at_hand: UsageCounters | None = None
        """Usage counters of the request whose response has most recently begun to arrive; None before the
        first response.
        """

    def become(self, user: str, client_id: str) -> None:
        """Count further requests of this connection for another client (principal and client-id)."""
        if self._client is None or self._names != (user, client_id):
            self._leave()
            client = self._client = self._registry.client(user, client_id)
            self._names = (user, client_id)
            self._seen = self._former.pop(client, []) or [_NEVER] * len(GROUPS)

    def end(self) -> None:
        """End the accounting of a connection that is closed."""
        self.answering(None)
        self._leave()
        self._former.clear()

    def _leave(self) -> None:
        if self._client is not None:
            if len(self._former) == FORMER_MAX:
                self._former.clear()
            self._former[self._client] = self._seen
            self._registry.leave(self._client)
            self._client = None

    def answering(self, usage_counters: UsageCounters | None) -> None:
        """Set the usage counters for the response that begins now. Mark the previous response's request as
        finished.
        """
        if self.at_hand is not None:
            self.at_hand.over()
        self.at_hand = usage_counters

    def grown(self, length: int) -> None:
        """Add `length` (bytes) to the counted size of the response that began last, because a rewrite has
        changed its size. `length` is negative if the response became shorter.
        """
        if self.at_hand is not None:
            self.at_hand.grown(length)

    def throttled(self, quota: int, throttle_ms: int) -> None:
        """Count as usage a throttle time (ms) that the latest response tells the client. `quota` is an index
        of `ByQuota`: the quota that the client has exceeded.
        """
        if self.at_hand is not None:
            self.at_hand.throttled(quota, throttle_ms)

    def read_old(self, size: int) -> None:
        """Count as usage `size` bytes of old record batches in the latest response."""
        if self.at_hand is not None:
            self.at_hand.read_old(size)

    def measured(self, *, under_way: bool) -> None:
        """Note that the bytes of the latest response are being counted, and will be charged at its end
        (`under_way`), or that they were charged. While they are being counted, the trace of the request stays
        open.
        """
        if self.at_hand is not None:
            self.at_hand.measured(under_way=under_way)

    def again(self, usage_counters: UsageCounters) -> None:
        """Keep the usage counters of a request that Weir decides about again after a query. The query's cost
        is added to these counters, and the request itself is counted later.
        """
        self._again = usage_counters

    def failed(self, user: str) -> None:
        """Count a violation of the protocol by the client, whose principal is `user`."""
        self._counts(user, _OTHER).failed()

    def token(self, user: str, *, request: int = 0, answer: int = 0) -> None:
        """Count the bytes of bare SASL tokens: `request` from the client, `answer` from the broker. They
        count as no request.
        """
        usage_counters = self._counts(user, _SECURITY)
        usage_counters.bytes_in += request
        usage_counters.grown(answer)

    def _counts(self, user: str, group: int) -> UsageCounters:
        """Return the usage counters for an event outside a request, such as a SASL token. If the client has
        not sent a client-id yet, or has just authenticated as `user`, set the connection's client first.
        """
        if self._client is None or self._names[0] != user:
            self.become(user, self._names[1])
        assert self._client is not None
        return self._registry.usage_counters(self._client, group)

    def usage_counters(
        self, group: int, api_key: int, api_version: int, data: bytes | bytearray = b"", frame: int = 0
    ) -> UsageCounters:
        """Return the usage counters for a request of this API group (an index of `GROUPS`), and count this
        connection for that group once per interval between drains. The request begins at `data[frame]`.
        """
        client = self._client
        assert client is not None  # `Client.identify` comes before
        usage_counters = client.usage_counters[group] or self._registry.usage_counters(client, group)
        if self._seen[group] != usage_counters.drained:
            self._seen[group] = usage_counters.drained
            usage_counters.seen()
        if not client.traced:
            return usage_counters
        again, self._again = self._again, None
        at = frame + _CORRELATION_ID
        correlation_id = int.from_bytes(data[at : at + 4], "big", signed=True)
        return again or RequestTrace(usage_counters, self.connection, api_key, api_version, correlation_id)
