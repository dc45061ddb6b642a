"""The client of a connection: its principal, its client-id, and the budgets that it draws on.

The principal changes when the broker accepts a SASL exchange, the client-id with any request. Budgets are
looked up once per connection and client-id, and again whenever quotas have changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.framing import INCOMPLETE, REQUEST_HEAD_BYTES, client_id_end
from proxy.connection.parse_cache import ParseCache
from proxy.connection.usage import ConnectionUsage  # fields' types: mypyc wants them at run time
from proxy.handlers.sasl.exchange import Exchange
from quotas import BrokerQuotas, ClientLedger

if TYPE_CHECKING:
    from proxy.handlers.decisions import Forward
    from proxy.handlers.plan import NeedsLook, Plan
    from proxy.handlers.sasl.identity import Identities
    from quotas import Budget

NO_LIMITS: Final = ClientLedger()

UNDER_WAY_MAX: Final = 32
"""Requests that a client with a limit on its time may have under way on a connection, however far from the
limit it is: all of them may be forwarded before the first is charged.
"""
NAME_BYTES_MAX: Final = 1024
"""Longer client-ids are looked up for each request: each connection keeps its own, and one may have 32 KB."""


class Client:
    """The client of one connection."""

    __slots__ = (
        "_cached_client_id",
        "_generation",
        "_identities",
        "_in_flight_max",
        "_node_id",
        "_quotas",
        "authenticated",
        "brokers",
        "exchange",
        "first_fetch_seen",
        "first_hold_end_ms",
        "first_produce_seen",
        "first_request_seen",
        "in_flight_max",
        "is_broker",
        "ledger",
        "parse_cache",
        "peer",
        "sasl_in_progress",
        "sends_sasl_tokens",
        "time_ledger",
        "usage",
        "user",
    )

    def __init__(
        self,
        quotas: BrokerQuotas,
        identities: Identities,
        *,
        user: str,
        peer: str,
        node_id: int | None,
        brokers: frozenset[str],
        usage: ConnectionUsage | None,
        in_flight_max: int,
    ) -> None:
        """Begin with a client that has sent nothing; see `Connection` for the parameters."""
        self._quotas = quotas
        self.brokers = brokers
        self._identities = identities
        self._node_id = node_id
        self._in_flight_max = in_flight_max
        self.user = user
        self.peer = peer
        self.is_broker = user in brokers
        """True if the principal is one of the brokers' own: it may be exempt as a replica."""
        self.authenticated = False
        """True if the broker has accepted the client by SASL."""
        self.exchange: Exchange | None = None
        """The SASL exchange under way; see `follow`."""
        self.sasl_in_progress = False
        """True if `tokens` looks first at the client's next bytes."""
        self.sends_sasl_tokens = False
        """True if both sides send bare SASL tokens now."""
        self._cached_client_id = b""
        """Bytes of the client-id that `ledger` were looked up for, its length included."""
        self._generation = -1
        """Generation of the quotas that they were looked up in."""
        self.ledger = NO_LIMITS
        """The budgets of the latest request's client; see `identify`."""
        self.time_ledger: ClientLedger | None = None
        """The same, if its request time is charged or its usage recorded."""
        self.in_flight_max = in_flight_max
        """Number of requests that may be in flight."""
        self.first_request_seen = False
        """True once this connection's first request was admitted. Until then it may also wait for request
        time that other connections of its client have used.
        """
        self.first_produce_seen = False
        """The same of produce requests and byte rates."""
        self.first_hold_end_ms: int | None = None
        """Time (ms) at which holds of first requests end; None while none was held."""
        self.first_fetch_seen = False
        """The same of share fetches: all other fetches are answered without records instead."""
        self.parse_cache = ParseCache()
        self.usage = usage
        """Counts what the client uses, if usage is recorded."""

    @property
    def recorded(self) -> bool:
        """True if usage is recorded."""
        return self.usage is not None

    def identify(self, data: bytearray, frame: int, end: int, now_ms: int) -> ClientLedger | None:
        """Return the budgets of the client of the request `data[frame:end]`; None if more bytes are needed.

        Raises ProtocolError.
        """
        start = frame + REQUEST_HEAD_BYTES
        known = self._cached_client_id
        if (
            self._generation == self._quotas.generation
            and data.startswith(known, start)
            and start + len(known) <= end
        ):
            return self.ledger
        stop = client_id_end(data, frame, end)
        if stop == INCOMPLETE:
            return None
        named = bytes(data[start:stop])
        self._look_up(named[2:].decode("utf-8", "replace"), now_ms)  # as Java does
        short = len(named) <= NAME_BYTES_MAX
        self._cached_client_id, self._generation = (named, self._quotas.generation) if short else (b"", -1)
        return self.ledger

    def identify_nameless(self, now_ms: int) -> None:
        """Look up the budgets of the client of a request whose head has no client-id."""
        self._look_up("", now_ms)
        self._cached_client_id, self._generation = b"", -1

    def _look_up(self, client_id: str, now_ms: int) -> None:
        self.parse_cache.clear()
        ledger = self.ledger = self._quotas.ledger(self.user, client_id, now_ms)
        timed = self.usage is not None or ledger.charges_request
        if self.usage is not None:
            self.usage.become(self.user, client_id)
        # Before SASL succeeds a broker's network layer answers ApiVersions, which has no quota, and nothing
        # else.
        free = not self.authenticated and self._node_id in self._identities.behind_sasl
        self.time_ledger = ledger if timed and not free else None
        most = self._in_flight_max
        limited = self.time_ledger is not None and ledger.request is not None
        self.in_flight_max = min(most, UNDER_WAY_MAX) if limited else most

    def client_id(self, data: bytearray, frame: int, end: int) -> str | None:
        """Return the client-id of the request `data[frame:end]`, empty for null; None if more bytes are
        needed. Raises ProtocolError.
        """
        stop = client_id_end(data, frame, end)
        if stop == INCOMPLETE:
            return None
        start = frame + REQUEST_HEAD_BYTES + 2
        return data[start:stop].decode("utf-8", "replace")

    def become(self, user: str) -> None:
        """Go on as another principal, or as the same one, authenticated again; what was looked up for the old
        one is forgotten.
        """
        if user != self.user or not self.authenticated:
            self.first_request_seen = self.first_produce_seen = self.first_fetch_seen = False
            self.first_hold_end_ms = None
        self.user = user
        self.authenticated = True
        self.is_broker = user in self.brokers
        self.parse_cache.clear()
        self._cached_client_id, self._generation = b"", -1

    def follow(self, exchange: Exchange | None) -> None:
        """From now on this SASL exchange is under way, or none."""
        self.exchange = exchange
        begun = exchange is not None and exchange.accepted
        self.sends_sasl_tokens = begun and exchange is not None and exchange.raw
        self.sasl_in_progress = begun and exchange is not None and (exchange.raw or exchange.hidden)

    def cache_parse(
        self,
        plan: Plan,
        data: bytearray,
        frame: int,
        stop: int,
        forward: Forward,
        *,
        budget: Budget | None = None,
    ) -> None:
        """Take requests that begin with the same `data[frame:stop]` for the same."""
        quotas = self._quotas
        if self.is_broker or quotas.topics is not None:
            return  # then each of its requests is looked at
        self.parse_cache.fill(
            plan, bytes(data[frame + REQUEST_HEAD_BYTES : stop]), forward, quotas.generation, budget
        )

    def cache_unless(self, plan: Plan, needs_look: NeedsLook) -> None:
        """Take requests for the same only if they need no other look."""
        if self.parse_cache.plan is plan:
            self.parse_cache.unless = needs_look
