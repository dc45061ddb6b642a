"""What one session's client uses, counted as it happens, if anybody wants to know (`Connection.usage`)."""

from __future__ import annotations

from typing import Final

from proxy.connection.usage_counters import ClientUsage, RequestTrace, UsageCounters
from proxy.connection.usage_registry import UsageRegistry
from usage.groups import GROUPS, Group

_NEVER: Final = -1
_OTHER: Final = GROUPS.index(Group.OTHER)
_SECURITY: Final = GROUPS.index(Group.SECURITY)
FORMER_MAX: Final = 16
"""Of so many clients that a session has been before it knows whether it was counted as one of theirs."""


class ConnectionUsage:
    """What one session's client uses; it may become another client."""

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
        """`connection` tells it from others in traces."""
        self._registry = registry
        self.connection = connection
        self._client: ClientUsage | None = None
        self._seen: list[int] = []
        """By group: the interval of the usage counters in which this connection was counted last."""
        self._former: dict[ClientUsage, list[int]] = {}
        """The same for clients that it was before: some connections take turns."""
        self._names = ("", "")
        self.queried: UsageCounters | None = None
        """Of the request that a query is run for, or whose answer comes later."""
        self._again: UsageCounters | None = None
        """Of the request that is to be judged again."""
        self.at_hand: UsageCounters | None = None
        """Of the request whose response began last."""

    def become(self, user: str, client_id: str) -> None:
        """From now on requests are this client's."""
        if self._client is None or self._names != (user, client_id):
            self._leave()
            client = self._client = self._registry.client(user, client_id)
            self._names = (user, client_id)
            self._seen = self._former.pop(client, []) or [_NEVER] * len(GROUPS)

    def end(self) -> None:
        """The session is over."""
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
        """A response begins; the one before is done with."""
        if self.at_hand is not None:
            self.at_hand.over()
        self.at_hand = usage_counters

    def grown(self, length: int) -> None:
        """The response at hand is changed, and by so much longer."""
        if self.at_hand is not None:
            self.at_hand.grown(length)

    def throttled(self, quota: int, throttle_ms: int) -> None:
        """The response at hand tells this throttle time because of a quota."""
        if self.at_hand is not None:
            self.at_hand.throttled(quota, throttle_ms)

    def measured(self, *, under_way: bool) -> None:
        """The response at hand is measured as it goes by, or was."""
        if self.at_hand is not None:
            self.at_hand.measured(under_way=under_way)

    def again(self, usage_counters: UsageCounters) -> None:
        """The request at hand is not counted yet: it comes again, and what it has cost so far is its own."""
        self._again = usage_counters

    def failed(self, user: str) -> None:
        """The client, of this principal, broke the protocol."""
        self._counts(user, _OTHER).failed()

    def token(self, user: str, *, request: int = 0, answer: int = 0) -> None:
        """A bare SASL token of so many bytes went by: no request, but bytes."""
        usage_counters = self._counts(user, _SECURITY)
        usage_counters.bytes_in += request
        usage_counters.grown(answer)

    def _counts(self, user: str, group: int) -> UsageCounters:
        """Where something is counted that is no request; the client may not have said its client-id yet, or
        may just have become this user.
        """
        if self._client is None or self._names[0] != user:
            self.become(user, self._names[1])
        assert self._client is not None
        return self._registry.usage_counters(self._client, group)

    def usage_counters(self, group: int, api_key: int, api_version: int) -> UsageCounters:
        """Where a request is counted."""
        client = self._client
        assert client is not None  # requests are judged when their client is known
        usage_counters = client.usage_counters[group] or self._registry.usage_counters(client, group)
        if self._seen[group] != usage_counters.drained:
            self._seen[group] = usage_counters.drained
            usage_counters.seen()
        return self._traced(usage_counters, api_key, api_version) if client.traced else usage_counters

    def _traced(self, counts: UsageCounters, api_key: int, api_version: int) -> UsageCounters:
        again, self._again = self._again, None
        return again or RequestTrace(counts, self.connection, api_key, api_version)
