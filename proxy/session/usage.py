"""What one session's client uses, counted as it happens, if anybody wants to know (`Session.usage`)."""

from __future__ import annotations

from typing import Final

from proxy.session.receipts import ClientUsage, Receipt, Traced
from proxy.session.usage_book import UsageBook
from usage.groups import GROUPS, Group

_NEVER: Final = -1
_OTHER: Final = GROUPS.index(Group.OTHER)
_SECURITY: Final = GROUPS.index(Group.SECURITY)


class SessionUsage:
    """What one session's client uses; it may become another client."""

    __slots__ = ("_answering", "_book", "_client", "_names", "_seen", "_slate", "connection", "errand")

    def __init__(self, book: UsageBook, connection: int) -> None:
        """`connection` tells it from others in traces."""
        self._book = book
        self._slate = book.slate
        self.connection = connection
        self._client: ClientUsage | None = None
        self._seen: list[int] = []
        """By group: the interval in which this session was counted last."""
        self._names = ("", "")
        self.errand: Receipt | None = None
        """Of the request that an errand is run for."""
        self._answering: Receipt | None = None
        """Of the request whose response began last."""

    def become(self, user: str, client_id: str) -> None:
        """From now on requests are this client's."""
        if self._client is None or self._names != (user, client_id):
            self._leave()
            self._client = self._book.client(user, client_id)
            self._names = (user, client_id)
            self._seen = [_NEVER] * len(GROUPS)

    def end(self) -> None:
        """The session is over."""
        self.answering(None)
        self._leave()

    def _leave(self) -> None:
        if self._client is not None:
            self._book.leave(self._client)
            self._client = None

    def answering(self, receipt: Receipt | None) -> None:
        """A response begins; the one before is done with."""
        if self._answering is not None:
            self._answering.over()
        self._answering = receipt

    def grown(self, length: int) -> None:
        """The response at hand is changed, and by so much longer."""
        if self._answering is not None:
            self._answering.grown(length)

    def throttled(self, quota: int, throttle_ms: int) -> None:
        """A charge for the response at hand was answered with this throttle time."""
        if self._answering is not None:
            self._answering.throttled(quota, throttle_ms)

    def failed(self, user: str) -> None:
        """The client, of this principal, broke the protocol."""
        self._counts(user, _OTHER).failed()

    def token(self, user: str, *, request: int = 0, answer: int = 0) -> None:
        """A bare SASL token of so many bytes went by: no request, but bytes."""
        receipt = self._counts(user, _SECURITY)
        receipt.bytes_in += request
        receipt.grown(answer)

    def _counts(self, user: str, group: int) -> Receipt:
        """Where something is counted that is no request; the client may not have said its client-id yet."""
        if self._client is None:
            self.become(user, "")
        assert self._client is not None
        return self._book.receipt(self._client, group)

    def receipt(self, group: int, api_key: int, api_version: int) -> Receipt:
        """Where a request is counted."""
        client = self._client
        assert client is not None  # requests are judged when their client is known
        receipt = client.receipts[group] or self._book.receipt(client, group)
        if self._seen[group] != self._slate.interval:
            self._seen[group] = self._slate.interval
            receipt.seen()
        return Traced(receipt, self.connection, api_key, api_version) if client.traced else receipt
