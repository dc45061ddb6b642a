"""The client of a connection: its principal, its client-id, its ledger, and its parse cache.

The principal changes when the broker accepts a SASL exchange; the client-id may change with any request. The
ledger is looked up once per connection and client-id, and again after each change of quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.protocol.framing import INCOMPLETE, REQUEST_HEAD_BYTES, client_id_end
from weir.proxy.connection.effects import UNLIMITED
from weir.proxy.connection.usage import ConnectionUsage  # fields' types: mypyc wants them at run time
from weir.proxy.handlers.sasl.exchange import SaslExchange, SaslLogin
from weir.quotas import BrokerQuotas, ClientLedger

if TYPE_CHECKING:
    from weir.proxy.handlers.plan import Plan
    from weir.proxy.handlers.sasl.identity import Identities

NO_LIMITS: Final = ClientLedger()

TIMED_IN_FLIGHT_MAX: Final = 32
"""Maximum number of requests in flight on a connection whose client has a quota for request time. Weir
charges a request at its response, so it may have forwarded this many requests before the first charge shows
that the client is over its quota.
"""
NAME_BYTES_MAX: Final = 1024
"""Maximum length (bytes) of a client-id that is cached with its ledger. The ledger of a longer client-id is
looked up for each request. Every connection has a cache, and a client-id may have 32 KB.
"""

HEAD_BYTES_MAX: Final = 1024
"""Maximum number of bytes from the beginning of a request that `ParseCache` keeps. Every connection has such
a cache, and a client-id may have 32 KB.
"""


class ParseCache:
    """The first bytes of the latest request that can be recognized, and what was parsed from them.

    Successive requests of a client often have the same bytes from the client-id to the last field on which
    the decision depends. Such a request is not parsed again while the same quotas are in force, because its
    ledger is known. `Plan.decide` decides about it.
    """

    __slots__ = ("generation", "head", "parsed", "plan")

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.head = b""
        """Bytes of the request from its client-id to the last field that the decision depends on."""
        self.parsed = 0
        """Value of the field on which the decision depends; 0 if it depends on none."""
        self.generation = -1
        """Number of changes of the quotas (`BrokerQuotas.generation`) at the time when the request was
        parsed. That of `Client` is older if no quota has made the connection look up the ledger.
        """

    def clear(self) -> None:
        """Forget the request."""
        self.plan = None


class Client:
    """The client of one connection: its principal, client-id, quotas and parse cache."""

    __slots__ = (
        "_cached_client_id",
        "_generation",
        "_identities",
        "exchange",
        "first_hold_end_ms",
        "first_request_seen",
        "ledger",
        "login",
        "parse_cache",
        "peer",
        "quotas",
        "software",
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
        usage: ConnectionUsage | None,
    ) -> None:
        """Begin with a client that has sent no request. The parameters are those of `Connection`."""
        self.quotas = quotas
        self._identities = identities
        self.user = user
        self.peer = peer
        self.exchange: SaslExchange | None = None
        """The SASL exchange in progress; None if there is no exchange."""
        self.login: SaslLogin | None = None
        """Result of the latest SASL exchanges; None before the first."""
        self.software = ""
        """Name and version of the client's library, from ApiVersions v3 on (KIP-511); empty if unknown."""
        self._cached_client_id = b""
        """Client-id that `ledger` was looked up for, as on the wire: its length (two bytes), then the text.
        """
        self._generation = -1
        """Number of changes of the quotas (`BrokerQuotas.generation`) at the time when `ledger` was looked
        up.
        """
        self.ledger = NO_LIMITS
        """Quotas and charges of the client that sent the latest request; `identify` looks up the ledger."""
        self.time_ledger: ClientLedger | None = None
        """Ledger (quotas of the client) to which request time is charged, and for which it is counted as
        usage: the same object as `ledger`. None if request time is neither charged nor counted.
        """
        self.first_request_seen = False
        """True once this connection's first request was admitted. Until then the request may be held for
        request time that other connections of its client have used.
        """
        self.first_hold_end_ms: int | None = None
        """Time (ms) at which every hold of a first request of this connection must end; None before the first
        hold.
        """
        self.parse_cache = ParseCache()
        self.usage = usage
        """Object that counts this connection's usage; None if usage is not recorded."""

    @property
    def is_broker(self) -> bool:
        """True if the client is a broker, whose fetches as a replica are exempt from quotas."""
        brokers = self._identities.brokers
        return brokers is not None and (not brokers or self.user in brokers)

    @property
    def in_flight_max(self) -> int:
        """Maximum number of requests of the client that may be in flight on this connection, because of its
        quota for request time; `ConnectionLimits.in_flight_max` bounds all clients.
        """
        limited = self.time_ledger is not None and self.time_ledger.request is not None
        return TIMED_IN_FLIGHT_MAX if limited else UNLIMITED

    @property
    def recorded(self) -> bool:
        """True if the usage of this connection is recorded."""
        return self.usage is not None

    def identify(self, data: bytearray, frame: int, end: int, now_ms: int) -> ClientLedger | None:
        """Return the ledger for the principal and the client-id of the request `data[frame:end]`; None if
        more bytes are needed.

        Raises ProtocolError if the client-id is malformed.
        """
        start = frame + REQUEST_HEAD_BYTES
        known = self._cached_client_id
        if (
            self._generation == self.quotas.generation
            and data.startswith(known, start)
            and start + len(known) <= end
        ):
            return self.ledger
        stop = client_id_end(data, frame, end)
        if stop == INCOMPLETE:
            return None
        found = bytes(data[start:stop])
        self._look_up(found[2:].decode("utf-8", "replace"), now_ms)  # Java replaces invalid bytes, too
        short = len(found) <= NAME_BYTES_MAX
        self._cached_client_id, self._generation = (found, self.quotas.generation) if short else (b"", -1)
        return self.ledger

    def identify_nameless(self, now_ms: int) -> None:
        """Look up the quotas for a request whose header has no client-id (ControlledShutdown v0)."""
        self._look_up("", now_ms)
        self._cached_client_id, self._generation = b"", -1

    def _look_up(self, client_id: str, now_ms: int) -> None:
        self.parse_cache.clear()
        ledger = self.ledger = self.quotas.ledger(self.user, client_id, now_ms)
        timed = self.usage is not None or ledger.charges_request
        if self.usage is not None:
            self.usage.become(self.user, client_id)
        # Before SASL succeeds, a broker answers only ApiVersions, in its network layer and without a quota.
        self.time_ledger = ledger if timed and not self.before_login else None

    @property
    def before_login(self) -> bool:
        """True if the client must log in by SASL and has not done so yet. Until then the broker takes only
        SASL requests and ApiVersions.
        """
        return not self.authenticated and self.quotas.node_id in self._identities.behind_sasl

    @property
    def quota_client_id(self) -> str:
        """Client-id of the latest request. Its value is the one by which quotas are found: the name set for
        clients without a client-id, if the request has none or has one longer than `NAME_BYTES_MAX`.
        """
        return self._cached_client_id[2:].decode("utf-8", "replace") or self.quotas.unnamed

    def client_id(self, data: bytearray, frame: int, end: int) -> str | None:
        """Return the client-id of the request `data[frame:end]`, empty for null; None if more bytes are
        needed. Raises ProtocolError if the client-id is malformed.
        """
        stop = client_id_end(data, frame, end)
        if stop == INCOMPLETE:
            return None
        start = frame + REQUEST_HEAD_BYTES + 2
        return data[start:stop].decode("utf-8", "replace")

    def become(self, user: str) -> None:
        """Set the principal after a successful SASL exchange (a first one, or a reauthentication, KIP-368),
        and clear everything cached for the former principal.
        """
        if user != self.user or not self.authenticated:
            self.first_request_seen = False
            self.first_hold_end_ms = None
        self.user = user
        self.login = SaslLogin(self.mechanism, accepted=True)
        self.parse_cache.clear()
        self._cached_client_id, self._generation = b"", -1

    def follow(self, exchange: SaslExchange | None) -> None:
        """Set the SASL exchange in progress; None for no exchange."""
        self.exchange = exchange
        if exchange is not None:
            self.login = SaslLogin(exchange.mechanism, accepted=self.authenticated)

    @property
    def authenticated(self) -> bool:
        """True if the broker has accepted the client by SASL."""
        return self.login is not None and self.login.accepted

    @property
    def mechanism(self) -> str:
        """Mechanism of the latest SASL exchange; empty before the first."""
        return "" if self.login is None else self.login.mechanism

    @property
    def sends_sasl_tokens(self) -> bool:
        """True if both sides send bare SASL tokens, without Kafka headers."""
        return self.exchange is not None and self.exchange.accepted and self.exchange.raw

    def cache_parse(self, plan: Plan, data: bytearray, frame: int, stop: int, parsed: int = 0) -> None:
        """Remember what was parsed from `data[frame:stop]`, for all requests that begin with these bytes. No
        effect if there are too many.
        """
        start, quotas, cache = frame + REQUEST_HEAD_BYTES, self.quotas, self.parse_cache
        if quotas.topics is not None or self.is_broker:
            return  # the decision depends on fields behind these bytes: the replica id, or topics
        if stop - start <= HEAD_BYTES_MAX:
            cache.plan, cache.head, cache.parsed = plan, bytes(data[start:stop]), parsed
            cache.generation = quotas.generation

    def forget_parse(self, plan: Plan) -> None:
        """Have the next request of this plan parsed, whatever its first bytes are."""
        if self.parse_cache.plan is plan:
            self.parse_cache.clear()
