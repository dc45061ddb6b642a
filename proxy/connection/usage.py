"""Count the usage of one connection's client, if usage is recorded (`Client.usage`)."""

from __future__ import annotations

from typing import Final

from weir.proxy.connection.usage_counters import ClientUsage, RequestTrace, UsageCounters
from weir.proxy.connection.usage_registry import UsageRegistry
from weir.usage.groups import GROUPS, Group

_NEVER: Final = -1
_OTHER: Final = GROUPS.index(Group.OTHER)
_SECURITY: Final = GROUPS.index(Group.SECURITY)
FORMER_MAX: Final = 16
"""Maximum number of former clients of a connection for which the connection remembers that it was counted."""


class ConnectionUsage:
    """Counts the usage of one connection's client. The client may change: `become` sets it."""

    __slots__ = (
        "_again",
        "_client",
        "_former",
        "_names",
        "_registry",
        "_seen",
        "at_hand",
        "connection",
        "queried",
    )

    def __init__(self, registry: UsageRegistry, connection: int) -> None:
        """Begin without a client. `connection` is the connection's number in traces."""
        self._registry = registry
        self.connection = connection
        self._client: ClientUsage | None = None
        self._seen: list[int] = []
        """Number of the interval between drains in which this connection was last counted, by API group;
        `_NEVER` before the first count.
        """
        self._former: dict[ClientUsage, list[int]] = {}
        """Values of `_seen` for former clients of this connection. Some connections alternate between
        clients, and each client counts such a connection once per interval.
        """
        self._names = ("", "")
        self.queried: UsageCounters | None = None
        """Usage counters of the request that is answered by a query or by a deferred response."""
        self._again: UsageCounters | None = None
        """Usage counters of the request whose decision is made again after a query."""
        self.at_hand: UsageCounters | None = None
        """Usage counters of the request whose response began last."""

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
        if self.queried is not None:
            self.queried.over()
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
        """Set the usage counters for the response that begins now, and close the trace of the response
        before.
        """
        if self.at_hand is not None:
            self.at_hand.over()
        self.at_hand = usage_counters

    def grown(self, length: int) -> None:
        """Add `length` (bytes, negative if the response became shorter) to the counted size of the present
        response, because a rewrite has changed that size.
        """
        if self.at_hand is not None:
            self.at_hand.grown(length)

    def throttled(self, quota: int, throttle_ms: int) -> None:
        """Count a throttle time (ms) that the present response tells the client because of a quota (an index
        of `ByQuota`).
        """
        if self.at_hand is not None:
            self.at_hand.throttled(quota, throttle_ms)

    def measured(self, *, under_way: bool) -> None:
        """Note that the bytes of the present response are being counted and will be charged at its end. With
        `under_way` False, note that the bytes were charged.
        """
        if self.at_hand is not None:
            self.at_hand.measured(under_way=under_way)

    def again(self, usage_counters: UsageCounters) -> None:
        """Keep the usage counters of a request that Weir decides about again after a query. The request is
        not counted yet, and the cost of the query belongs to it.
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
        """Return the usage counters for events that belong to no request. The client may not have sent a
        client-id yet, or may just have authenticated as this user.
        """
        if self._client is None or self._names[0] != user:
            self.become(user, self._names[1])
        assert self._client is not None
        return self._registry.usage_counters(self._client, group)

    def usage_counters(self, group: int, api_key: int, api_version: int) -> UsageCounters:
        """Return the usage counters for a request of this API group (an index of `GROUPS`), and count this
        connection for that group once per interval between drains.
        """
        client = self._client
        assert client is not None  # `Client.identify` comes before
        usage_counters = client.usage_counters[group] or self._registry.usage_counters(client, group)
        if self._seen[group] != usage_counters.drained:
            self._seen[group] = usage_counters.drained
            usage_counters.seen()
        return self._traced(usage_counters, api_key, api_version) if client.traced else usage_counters

    def _traced(self, counts: UsageCounters, api_key: int, api_version: int) -> UsageCounters:
        again, self._again = self._again, None
        return again or RequestTrace(counts, self.connection, api_key, api_version)
