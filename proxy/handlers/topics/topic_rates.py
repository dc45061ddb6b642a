"""Byte rates of topics: charges of produce requests and fetch responses to topics that have a rate.

These charges are made in addition to the client's own quotas: this module wraps the plans of `bandwidth`. The
longest throttle counts. The bytes of a topic's records are counted as the frame arrives, and charged at its
last byte. The head of a response larger than the buffer was already forwarded when the charge is made; the
response to the next fetch then tells the throttle time.

Newer versions have topic ids instead of names (KIP-516). A request waits while Weir asks the broker for the
names of its unknown ids (`names_by_id`). Later ids of a request, and those in responses, cannot wait for a
name. The bytes of a topic whose name is unknown at the end of the frame are not charged, and the client's
next request asks for the name.

While a topic is over its rate, connections that fetch it take turns as those of a client do (`bandwidth`); a
connection stands in all of its lines at once. A connection's first records for such a topic are held for a
limited time, whether or not they arrive in the connection's first request. Otherwise a client could produce
at any rate by opening a connection for each request. A request that is complete, or that begins with such
records, is held as a whole; of a longer request, the bytes behind those that were read are held. All holds of
a connection end at the same time at the latest, which the first hold fixes. A fetch that continues a fetch
session names no topics (`fetch_sessions`). If this connection began the fetch session, the fetch has the
topics named then; if another connection began it, the fetch may have any topic.
"""

from __future__ import annotations

from typing import Final

from weir.protocol.errors import OversizedError, ProtocolError
from weir.protocol.framing import INCOMPLETE, request_body
from weir.protocol.messages import (
    FetchRequest,
    FetchResponse,
    Message,
    ProduceRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)
from weir.protocol.scanning.field_offsets import field_offset
from weir.protocol.scanning.least_fetch import ask_least
from weir.protocol.scanning.topic_bytes import TopicBytes
from weir.protocol.scanning.topic_names import UNKNOWN_MAX, FindTopics, topics_in
from weir.protocol.values import schema_of
from weir.proxy.handlers.bandwidth.bandwidth import (
    SHARE_THROTTLE_MS_MAX,
    FetchTurns,
    acquire_nothing,
    capped,
)
from weir.proxy.handlers.decisions import WAIT, Decision, Forward, Hold, Query, Wait
from weir.proxy.handlers.plan import ByteCounter, Context, Plan, Removal, Tell
from weir.proxy.handlers.topics.asked_names import ask_first
from weir.proxy.handlers.topics.fetch_sessions import FetchSession, Track, tracker
from weir.proxy.handlers.unread import passed_unread
from weir.quotas import ClientLedger
from weir.quotas.limiters.throttle import INT32_MAX
from weir.quotas.topics import TopicRates

METERED_FETCH: Final = Forward(charged=True, serial=True)
"""Decision to forward a fetch of topics with a rate. The client's next requests wait for the response,
because its length decides the cost.
"""

METERED_UNREAD: Final = Forward(charged=True, serial=True, unread=True)


class TopicByteCounter:
    """A `ByteCounter` that counts and charges the bytes of one frame by topic."""

    __slots__ = ("_clock", "_context", "_in_turn", "_is_request", "_rates", "counted", "quota")

    def __init__(self, context: Context, rates: TopicRates, message: type[Message], version: int) -> None:
        """Begin to count the bytes of topics that have a rate, in a frame of this message and version."""
        self._context = context
        self._rates = rates
        self.quota = rates.key
        self._clock = context.clock
        self._is_request = message is ProduceRequest
        self._in_turn = message is FetchResponse
        self.counted = TopicBytes(message, version, rates.names, context.cluster.names_by_id.recent)
        """The bytes by topic."""

    def feed(self, data: bytearray, start: int, stop: int) -> int:
        """Count the body's next bytes, `data[start:stop]`, as many elements as the turn allows. Return the
        position behind the counted bytes. Raises ProtocolError if the body is malformed, OversizedError if
        too many names are unknown.
        """
        counted = self.counted
        counted_to = self._clock.feed(counted, data, start, stop)
        if counted.unknown and self._is_request and len(counted.unknown) >= UNKNOWN_MAX:
            raise OversizedError(f"{UNKNOWN_MAX} topic ids that Weir does not know")  # more are not counted
        return counted_to

    def unnamed(self) -> set[bytes]:
        """Return the ids, among the counted topics, of topics whose names are unknown."""
        names = self._context.cluster.names_by_id
        for topic_id in tuple(self.counted.unknown):
            name = names.name(topic_id)
            if name is not None:
                self.counted.count_as(topic_id, name if name in self._rates.names else None)
        return self.counted.unknown

    def first_hold_ms(self, context: Context) -> int:
        """Return the time (ms) for which to hold those bytes of a request that were not counted yet; 0 for no
        hold. The bytes are held if this connection produces to a topic for the first time while that topic is
        over its rate.
        """
        seen = _state(context).produced
        new = self.counted.begun.keys() - seen - self.counted.unknown
        if not new:
            return 0
        seen.update(new)
        return context.first_hold_ms(self._rates.throttled_until_ms(name.decode() for name in new))

    def charge(self, now_ms: int, *, told: bool = True) -> int:
        """Charge the counted bytes to their topics, and return the throttle time (ms). Have the client's
        next request ask for the names that are unknown.
        """
        if self.counted.unknown and (unnamed := self.unnamed()):
            self._context.cluster.unnamed_topics.meet(self._context.client.user, unnamed)
            for topic_id in tuple(unnamed):
                self.counted.count_as(topic_id, None)
        return self._rates.charge(self.counted.counted, now_ms, told=told, in_turn=self._in_turn)

    def cut(self, now_ms: int) -> None:
        """Charge no bytes: a broker ignores an incomplete request."""


class TopicRatesState:
    """State of a connection: the topics with a rate that it has named, as one principal."""

    __slots__ = ("fetched", "produced", "session", "user")

    def __init__(self) -> None:
        self.user = ""
        """Principal that has named the topics."""
        self.produced: set[bytes] = set()
        """Names, in UTF-8, of the topics to which this connection has begun to produce."""
        self.fetched: set[bytes] = set()
        """Names, in UTF-8, of the topics that share fetches of this connection have named."""
        self.session: FetchSession | None = None
        """Latest fetch session of the connection; None before the first."""


def _state(context: Context) -> TopicRatesState:
    """Return the connection's state. Another principal begins without topics."""
    state = context.state_of(TopicRatesState)
    if state.user != context.client.user:
        state.user = context.client.user
        state.produced.clear()
        state.fetched.clear()
    return state


def _emptied(context: Context, data: bytearray, body: int, end: int) -> None:
    session = None if context.client.quotas.topics is None else _state(context).session
    if session is not None:
        session.answered(data, body, end)


class FetchByteCounter(TopicByteCounter):
    """Counts the records of a fetch response by topic. If the fetch has a fetch session, the counter also
    gives the session's object the id and the topics in the response.
    """

    __slots__ = ("_is_shared", "_session")

    def __init__(
        self,
        context: Context,
        rates: TopicRates,
        message: type[Message],
        version: int,
        session: FetchSession | None,
    ) -> None:
        """Begin to count the bytes of topics that have a rate, in a response of this type and version.
        `session`: None for responses without fetch sessions.
        """
        super().__init__(context, rates, message, version)
        self._is_shared = message is ShareFetchResponse
        self._session = session

    def feed(self, data: bytearray, start: int, stop: int) -> int:
        """Count the body's next bytes, `data[start:stop]`, and pass them to the fetch session. Return the
        position behind the counted bytes. Raises ProtocolError if the body is malformed.
        """
        counted_to = super().feed(data, start, stop)
        if self._session is not None:
            self._session.answered(data, start, counted_to)
        return counted_to

    def charge(self, now_ms: int, *, told: bool = True) -> int:
        """Charge the counted bytes, and add their topics to the fetch session; return the throttle
        time (ms).
        """
        throttle_ms = super().charge(now_ms, told=told)  # first: it names the topics
        session = self._session
        if self._is_shared:
            return min(throttle_ms, SHARE_THROTTLE_MS_MAX)
        if not told:  # else an untold connection that has its turns would have them all
            until_ms = self._rates.throttled_until_ms(name.decode() for name in self.counted.counted)
            turns = self._context.state_of(FetchTurns)
            turns.from_ms = until_ms if until_ms > now_ms else turns.from_ms
        if session is not None:
            if session.asked is None:
                session.adopt()
            session.topics.update(self.counted.counted)
        return throttle_ms

    def cut(self, now_ms: int) -> None:
        """Charge the records that were forwarded of a response whose other bytes will not come, because the
        connection has closed: the client has received these records.
        """
        self._rates.charge(self.counted.begun, now_ms, told=False, in_turn=self._in_turn)


def plan_produce(plan: Plan) -> None:
    """Charge the records of produce requests to their topics, once a request is complete, and hold a
    connection's first records for a topic over its rate.
    """
    inner, version = plan.admit, plan.version
    if inner is None:
        raise AssertionError("bandwidth comes before topic rates")

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        decision, topics = inner(context, data, frame, end, complete), context.client.ledger.topics
        if topics is None or not topics.produce.names or not isinstance(decision, Forward):
            return decision
        if not complete and end - frame < context.buffer_bytes and _may_hold(context, topics.produce):
            return WAIT
        byte_counter = TopicByteCounter(context, topics.produce, ProduceRequest, version)
        try:
            body = request_body(data, frame, end, flexible=plan.flexible_request)
            counted_to = byte_counter.feed(data, body, end)
        except OversizedError:
            raise
        except ProtocolError:
            return passed_unread(decision)
        if byte_counter.counted.unknown or context.cluster.unnamed_topics.met:
            query = ask_first(context, byte_counter.unnamed())
            if query is not None:
                return query
        hold_ms = byte_counter.first_hold_ms(context)
        if hold_ms > 0:
            return Hold(hold_ms)
        return decision.but(byte_counter=byte_counter, counted_to=counted_to if counted_to < end else 0)

    plan.admit = admit


def _may_hold(context: Context, rates: TopicRates) -> bool:
    """Return True if any topic is over its rate. The request's topics must then be read, because the request
    may have to be held.
    """
    return context.first_hold_ms(rates.throttled_until_ms()) > 0


def plan_fetch(plan: Plan) -> None:
    """Charge the records of fetch responses to their topics; of topics over their rate, only fetches of
    connections that have their turn get records.
    """
    inner, removal, version = plan.admit, plan.removal, plan.version
    if inner is None or removal is None:
        raise AssertionError("bandwidth comes before topic rates")
    topics_of, track = topics_in(FetchRequest, version, "topics"), tracker(version)
    least, max_bytes = ask_least(version), field_offset(FetchRequest, version, "max_bytes")
    has_sessions = field_offset(FetchRequest, version, "session_id") is not None

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        rates = None if context.client.quotas.topics is None else _rates_of_client(context, data, frame, end)
        if rates is None:
            return inner(context, data, frame, end, complete)
        metered: Forward | Query | None = None
        if not rates.enforces:
            metered = ask_first(context, ())
        else:
            body = request_body(data, frame, end, flexible=plan.flexible_request) if complete else INCOMPLETE
            if body == INCOMPLETE:
                return WAIT
            metered = _metered(context, topics_of, track, rates, data, body, end)
        if isinstance(metered, Query):
            return metered
        decision = inner(context, data, frame, end, complete)  # last, because it may change the request
        if not isinstance(decision, Forward):
            return decision
        most = _most(context, context.client.ledger) if metered is METERED_FETCH else INT32_MAX
        if most < INT32_MAX:
            return capped(context, plan, least, max_bytes, most, data, frame, end, complete)
        return metered or decision.but(charged=True)

    def over(context: Context, ledger: ClientLedger) -> int:
        until_ms = removal.over(context, ledger)
        return until_ms if ledger.topics is None else max(until_ms, _over(context, ledger))

    def byte_counter(context: Context, ledger: ClientLedger) -> ByteCounter | None:
        rates = _rates_of(ledger)
        if rates is None:
            return None
        session = _state(context).session if has_sessions else None
        return FetchByteCounter(context, rates, FetchResponse, version, session)

    plan.admit, plan.whole = admit, True
    plan.byte_counter = byte_counter
    plan.counted_removal = Removal(over, _with_topics(removal.tell), _emptied if has_sessions else None)


def _rates_of_client(context: Context, data: bytearray, frame: int, end: int) -> TopicRates | None:
    """Return the topic rates that apply to the client of the fetch `data[frame:end]`; None without such
    rates, or if more bytes are needed.
    """
    ledger = context.client.identify(data, frame, end, context.now_ms)
    return None if ledger is None else _rates_of(ledger)


def plan_share_fetch(plan: Plan) -> None:
    """Charge the records of share fetch responses (KIP-932) to their topics. While a topic that share fetches
    of the connection have named is over its rate, ask for no records, as bandwidth does for a client's quota.
    """
    inner, version = plan.admit, plan.version
    if inner is None:
        raise AssertionError("bandwidth comes before topic rates")
    topics_of = topics_in(ShareFetchRequest, version, "topics")
    max_records = field_offset(ShareFetchRequest, version, "max_records")

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        rates = None if context.client.quotas.topics is None else _rates_of_client(context, data, frame, end)
        if rates is None:
            return inner(context, data, frame, end, complete)
        if not complete and end - frame < context.buffer_bytes:
            return WAIT
        body = request_body(data, frame, end, flexible=plan.flexible_request)
        if complete and body != INCOMPLETE:
            query = _share_fetched(context, topics_of, rates, data, body, end)
            if query is not None:
                return query
        decision = inner(context, data, frame, end, complete)  # last, because it may change the request
        if not isinstance(decision, Forward) or decision.throttle_ms:  # over the quota: it acquires nothing
            return decision
        if not rates.enforces:
            return decision.but(charged=True)
        fetched = [name.decode() for name in _state(context).fetched]
        if max_records is not None and rates.throttled_until_ms(fetched) > context.now_ms:
            position = INCOMPLETE if body == INCOMPLETE else max_records.locate(data, body, end, complete)
            if position == INCOMPLETE:
                return WAIT
            rest_ms = rates.tell_rest(fetched, context.now_ms)
            return acquire_nothing(max_records, data, position, rest_ms)
        return METERED_FETCH

    def byte_counter(context: Context, ledger: ClientLedger) -> ByteCounter | None:
        rates = _rates_of(ledger)
        return None if rates is None else FetchByteCounter(context, rates, ShareFetchResponse, version, None)

    plan.admit, plan.byte_counter = admit, byte_counter


def _named_in(
    context: Context, topics_of: FindTopics, rates: TopicRates, data: bytearray, body: int, end: int
) -> tuple[set[bytes], set[bytes]]:
    """Return the topics with a rate that the request with body `data[body:end]` names, and the topic ids in
    it whose names may be unknown. Raises ProtocolError if the body is malformed, OversizedError if it has too
    many elements.
    """
    unnamed, names = set[bytes](), context.cluster.names_by_id
    found = topics_of(data, body, end, rates.names, names.recent, unnamed)
    found |= {name for one in unnamed if (name := names.name(one)) is not None} & rates.names
    return found, unnamed


def _share_fetched(
    context: Context, topics_of: FindTopics, rates: TopicRates, data: bytearray, body: int, end: int
) -> Query | None:
    """Add the topics of the share fetch with body `data[body:end]` to those of the connection. Return a query
    for the names of its topics; None if there is nothing to ask.
    """
    try:
        named, unnamed = _named_in(context, topics_of, rates, data, body, end)
    except ProtocolError:  # too many acknowledgements, or malformed: the response is charged all the same
        return None
    _state(context).fetched |= named
    return ask_first(context, unnamed)


def _metered(
    context: Context,
    topics_of: FindTopics,
    track: Track,
    rates: TopicRates,
    data: bytearray,
    body: int,
    end: int,
) -> Forward | Query:
    """Track the fetch session of the fetch with body `data[body:end]`. Return the decision to forward the
    fetch and to count its response by topic, or a query for the names of its topics.

    A fetch of too many topics to read may have any topic. Its connection is not closed, because consumers of
    many topics would stop for good when the first topic gets a rate.
    """
    state = _state(context)
    session = state.session = state.session or FetchSession()
    try:
        named, unnamed = _named_in(context, topics_of, rates, data, body, end)
        session.asked = track(session, data, body, end, named)
    except OversizedError:
        session.forget()
        return ask_first(context, ()) or METERED_FETCH
    except ProtocolError:
        return METERED_UNREAD
    return ask_first(context, unnamed) or METERED_FETCH


def _most(context: Context, ledger: ClientLedger) -> int:
    """Return the number of bytes that the latest fetch may ask for, as far as its topics' rates say; 0 if it
    must bring no records.
    """
    exceeded = _exceeded(context, ledger)
    if exceeded is None:
        return INT32_MAX
    rates, named = exceeded
    in_line = context.state_of(FetchTurns).from_ms <= context.now_ms
    return rates.fetch_max_bytes_at(named, context.now_ms, in_line=in_line)


def _over(context: Context, ledger: ClientLedger) -> int:
    """Return the time (ms) until which a topic's rate keeps the records of the latest fetch from this
    connection; 0 if no topic's does.
    """
    exceeded = _exceeded(context, ledger)
    if exceeded is None:
        return 0
    rates, named = exceeded
    return rates.closed_until_ms(named, in_line=context.state_of(FetchTurns).from_ms <= context.now_ms)


def _with_topics(tell: Tell) -> Tell:
    def tell_with_topics(context: Context, ledger: ClientLedger) -> tuple[int, int, int]:
        turns, now_ms = context.state_of(FetchTurns), context.now_ms
        own_ms = turns.from_ms - now_ms
        client_ms = tell(context, ledger)[0]
        # After a response that could not tell it, the connection waits for its own turn. (Rejected: for the
        # end of the line. All then come at once, and a rate forgets what they fetched meanwhile: 1.8 of it.)
        topics_ms = _tell(context, ledger, own_ms if own_ms > 0 else INT32_MAX)
        if topics_ms:
            turns.from_ms = now_ms + max(client_ms, topics_ms)
        return client_ms, topics_ms, 0

    return tell_with_topics


def _tell(context: Context, ledger: ClientLedger, most_ms: int) -> int:
    """Count a throttled response from which Weir has removed the records, for the topics of the latest fetch.
    Return the throttle time (ms), at most `most_ms`.
    """
    found = _latest(context, ledger)
    if found is None:
        return 0
    rates, named = found
    return rates.tell_rest(named, context.now_ms, most_ms)


def _exceeded(context: Context, ledger: ClientLedger) -> tuple[TopicRates, list[str] | None] | None:
    """Return the result of `_latest` if a topic of the latest fetch is over its rate; else None."""
    found = _latest(context, ledger)
    if found is None or found[0].throttled_until_ms(found[1]) <= context.now_ms:
        return None
    return found


def _latest(context: Context, ledger: ClientLedger) -> tuple[TopicRates, list[str] | None] | None:
    """Return the rates that apply to the client's fetches, and the topics with a rate that the latest fetch
    may have: None if it may have any topic. Return None if no rate applies, or before the first fetch.
    """
    rates = _rates_of(ledger)
    session = None if rates is None else _state(context).session
    if rates is None or session is None:
        return None
    return rates, None if session.asked is None else [name.decode() for name in session.asked]


def _rates_of(ledger: ClientLedger) -> TopicRates | None:
    """Return the topic rates that apply to the client's fetches; None if no topic has such a rate."""
    topics = ledger.topics
    if topics is None or not topics.fetch.names:
        return None
    return topics.fetch


def prepare() -> None:
    """Compile the scanners of all versions: 30 ms in all."""
    for message in (ProduceRequest, FetchResponse, ShareFetchResponse):
        for version in schema_of(message).versions:
            TopicBytes(message, version, ())
