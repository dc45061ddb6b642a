"""Follows one connection: pairs responses with requests, and applies the rules to both."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weir.conformance.events import Side
from weir.conformance.frames import FRAME_MAX, FrameCutter, LengthError
from weir.conformance.verify.client_behaviour import SASL_EXCHANGE, Sasl, Throttle, Versions
from weir.conformance.verify.finding import Defect, Finding, hex_around
from weir.conformance.verify.messages import Form, Kind, end_of, form, located, read, throttle_place
from weir.conformance.verify.response_form import response_form
from weir.conformance.verify.rules import RULES, R
from weir.conformance.verify.values import (
    error_code_defects,
    records_defects,
    request_defects,
    throttle_defects,
)
from weir.protocol.api import ApiKey, versions
from weir.protocol.framing import REQUEST_HEAD, REQUEST_LENGTH_MIN, RESPONSE_HEAD, RESPONSE_LENGTH_MIN
from weir.protocol.messages import ApiVersionsRequest

if TYPE_CHECKING:
    from weir.conformance.frames import Frame
    from weir.conformance.verify.producers import ProducedBatch, Producers
    from weir.conformance.verify.traffic import Exchange, Traffic
    from weir.protocol.values import Message

Report = Callable[[Finding], None]

SEARCH_MAX: Final = 1000
"""Maximum number of requests in flight among which a response's correlation id is looked for."""
COMPARED_MAX: Final = 100
"""Maximum number of requests in flight with which a request's correlation id is compared."""
_FETCHES: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})


class InFlight(msgspec.Struct, frozen=True, gc=False):
    """A request without its response."""

    api_key: int
    version: int
    correlation_id: int
    api: str
    exchange: Exchange | None = None
    """Entry in which its frames count; None if it has no API."""
    batches: Sequence[ProducedBatch] = ()
    """A Produce request's batches that have a producer id."""
    may_lack_answer: bool = False
    """True if the capture may rightly have no response: the request cannot be read (it may be a Produce with
    acks=0), or `weir capture` has answered it itself (an ApiVersions version that the schemas lack).
    """


_TOKEN: Final = InFlight(-1, -1, -1, "SASL token")
_NO_REQUEST: Final = InFlight(-1, -1, -1, "")


class ConnectionVerifier:
    """Applies the rules to one connection, and reports findings."""

    def __init__(self, number: int, producers: Producers, traffic: Traffic, report: Report) -> None:
        self._number = number
        self._producers = producers
        self._traffic = traffic
        self._report = report
        self._cutters = (FrameCutter(), FrameCutter())
        self._in_flight: deque[InFlight] = deque()
        self._overtaken: deque[InFlight] = deque(maxlen=SEARCH_MAX)
        """Requests without a response before the oldest request in flight: a later one was answered."""
        self._versions = Versions()
        self._throttle = Throttle()
        self._sasl = Sasl()
        self._pipelines = False
        self._abandoned = False
        """True behind a place from which frames or pairs can no longer be found."""
        self._closed: set[Side] = set()

    @property
    def ended(self) -> bool:
        """True if both sides have closed."""
        return len(self._closed) == len(Side)

    def feed(self, side: Side, data: bytes, time_ns: int) -> None:
        """Take bytes that a side sent."""
        if self._abandoned:
            return
        self._traffic.bytes += len(data)
        take = self._request if side is Side.CLIENT else self._response
        try:
            for frame in self._cutters[side].feed(data, time_ns):
                if not self._abandoned:
                    take(frame)
        except LengthError as error:
            self._fail(side, time_ns, R.FRAME_LENGTH, "A frame has a negative length.", str(error.length))

    def dropped(self, side: Side, count: int, time_ns: int) -> None:
        """Take a gap in the capture."""
        if not self._abandoned:
            text = "The capture lacks bytes; the connection is not checked behind them. Capture again."
            self._fail(side, time_ns, R.CAPTURE_GAP, text, f"{count} bytes missing")

    def closed(self, side: Side, time_ns: int) -> None:
        """Take the end of a side's bytes. The side that closes second cannot complete a frame any more."""
        first = not self._closed
        self._closed.add(side)
        if self._abandoned:
            return
        if first and self._cutters[side].incomplete:
            self._incomplete(side, time_ns)
            return
        unanswered = next((one for one in self._in_flight if not one.may_lack_answer), None)
        if side is Side.SERVER and first and unanswered is not None:
            text = (
                "The server closes the connection and leaves a request unanswered. "
                "Brokers do so if they cannot read a request: its other findings may say why."
            )
            self._place(
                side,
                time_ns,
                unanswered,
                Defect(R.REQUEST_UNANSWERED, text, "", -1, "a response", "the end"),
            )

    def _incomplete(self, side: Side, time_ns: int) -> None:
        """Report a frame that the end of the connection cuts off, with the field at its end."""
        data, missing = self._cutters[side].incomplete, self._cutters[side].missing
        request, path = self._request_of(side, data), ""
        if request.exchange is not None and request.exchange.known:
            kind: Kind = "request" if side is Side.CLIENT else "response"
            path = end_of(data, form(kind, request.api_key, request.version))
        text = "The connection ends within a frame."
        found = f"{missing} bytes missing"
        defect = Defect(R.FRAME_INCOMPLETE, text, path, len(data), "a whole frame", found)
        self._place(side, time_ns, request, defect, data)

    def _request_of(self, side: Side, data: bytes) -> InFlight:
        """Return the request to which an incomplete frame belongs; one without an API if that is unknown."""
        if side is Side.CLIENT and len(data) >= REQUEST_HEAD.size and not self._sasl.raw_tokens:
            _length, api_key, version, correlation_id = REQUEST_HEAD.unpack_from(data)
            exchange = self._traffic.of(api_key, version)
            return InFlight(api_key, version, correlation_id, exchange.api, exchange)
        if side is Side.SERVER and len(data) >= RESPONSE_HEAD.size:
            _length, correlation_id = RESPONSE_HEAD.unpack_from(data)
            latest = islice(self._in_flight, SEARCH_MAX)
            return next((one for one in latest if one.correlation_id == correlation_id), _NO_REQUEST)
        return _NO_REQUEST

    def _fail(self, side: Side, time_ns: int, rule: R, text: str, found: str) -> None:
        self._abandoned = True
        self._in_flight.clear()
        self._place(side, time_ns, _NO_REQUEST, Defect(rule, text, "", -1, "", found))

    # Requests

    def _request(self, frame: Frame) -> None:
        if self._sasl.raw_tokens:
            self._raw_token(frame)
            return
        if len(frame.data) < 4 + REQUEST_LENGTH_MIN:
            self._fail(
                Side.CLIENT,
                frame.ended_ns,
                R.FRAME_LENGTH,
                "A request is shorter than its header.",
                f"{len(frame.data) - 4} bytes",
            )
            return
        _length, api_key, version, correlation_id = REQUEST_HEAD.unpack_from(frame.data)
        exchange = self._traffic.of(api_key, version)
        exchange.requests += 1
        request = InFlight(api_key, version, correlation_id, exchange.api, exchange)
        # The first request that a producer pipelines may be the one that is on its way.
        self._pipelines = self._pipelines or len(self._in_flight) > 0 or api_key == ApiKey.PRODUCE
        defects = self._throttle.request(frame.begun_ns, pipelines=self._pipelines)
        defects += self._versions.request(api_key, version) + self._sasl.request(api_key)
        defects += self._reused(correlation_id)
        if not exchange.known:
            defects += _unknown(api_key, version)
            message = None
        else:
            shape = form("request", api_key, version)
            read_defects, message, batches = self._read(frame, shape, request)
            values = [] if message is None else request_defects(message, api_key, version)
            defects += read_defects + (located(frame.data, shape, values, {}) if values else [])
            request = msgspec.structs.replace(request, batches=batches) if batches else request
        if _may_lack_answer(api_key, message, known=exchange.known):
            request = msgspec.structs.replace(request, may_lack_answer=True)
        for defect in defects:
            self._place(Side.CLIENT, frame.ended_ns, request, defect, frame.data)
        if api_key != ApiKey.PRODUCE or getattr(message, "acks", 1):
            self._in_flight.append(request)
        if api_key == ApiKey.SASL_HANDSHAKE:
            if message is None:
                self._sasl.give_up()
            else:
                self._sasl.handshake(version, getattr(message, "mechanism", ""))

    def _reused(self, correlation_id: int) -> list[Defect]:
        """Return the defects of a correlation id that an earlier request in flight has."""
        latest = islice(reversed(self._in_flight), COMPARED_MAX)
        if all(one.correlation_id != correlation_id or one is _TOKEN for one in latest):
            return []
        text = "The client uses the correlation id of a request in flight again. Count up for each request."
        where, expected = "header.correlation_id", "another"
        return [Defect(R.CORRELATION_ID_REUSED, text, where, 8, expected, str(correlation_id))]

    def _raw_token(self, frame: Frame) -> None:
        """Take a token without Kafka's header, behind SaslHandshake version 0."""
        if self._sasl.raw_tokens < 0:
            text = "The number of tokens of this mechanism is unknown; the connection is not checked further."
            self._fail(Side.CLIENT, frame.ended_ns, R.SASL_UNCHECKED, text, "")
            return
        self._sasl.raw_tokens -= 1
        self._traffic.other.requests += 1
        self._in_flight.append(_TOKEN)

    # Responses

    def _response(self, frame: Frame) -> None:
        if self._in_flight and self._in_flight[0] is _TOKEN:
            self._in_flight.popleft()
            self._traffic.other.responses += 1
            return
        if len(frame.data) < 4 + RESPONSE_LENGTH_MIN:
            self._fail(
                Side.SERVER,
                frame.ended_ns,
                R.FRAME_LENGTH,
                "A response is shorter than its header.",
                f"{len(frame.data) - 4} bytes",
            )
            return
        _length, correlation_id = RESPONSE_HEAD.unpack_from(frame.data)
        request, defects = self._pair(correlation_id)
        exchange = request.exchange or self._traffic.other
        exchange.responses += 1
        if exchange.known or request.api_key == ApiKey.API_VERSIONS:
            defects += self._answer(frame, request)
        else:
            self._forget(request.api_key)
        for defect in defects:
            self._place(Side.SERVER, frame.ended_ns, request, defect, frame.data)

    def _pair(self, correlation_id: int) -> tuple[InFlight, list[Defect]]:
        """Remove and return the request of a response, with the defects of the response's place."""
        where, found = "header.correlation_id", str(correlation_id)
        if self._in_flight and self._in_flight[0].correlation_id == correlation_id:
            return self._in_flight.popleft(), []
        for request in self._overtaken:
            if request.correlation_id == correlation_id and request is not _TOKEN:
                self._overtaken.remove(request)  # its place was reported when it was overtaken
                return request, []
        if not self._in_flight:
            text = "The server sends a response that no request asked for."
            return _NO_REQUEST, [Defect(R.RESPONSE_WITHOUT_REQUEST, text, where, 4, "no response", found)]
        for index in range(1, min(len(self._in_flight), SEARCH_MAX)):
            request = self._in_flight[index]
            if request.correlation_id == correlation_id and request is not _TOKEN:
                late = self._overtake(index)
                text = "The server answers a later request first. Answer in the order of the requests."
                return self._in_flight.popleft(), [
                    Defect(R.RESPONSE_ORDER, text, where, 4, str(one.correlation_id), found)
                    for one in late[:1]
                ]
        request = self._in_flight.popleft()
        text = "The server answers with a correlation id that no request in flight has. Copy the request's."
        return request, [Defect(R.CORRELATION_ID, text, where, 4, str(request.correlation_id), found)]

    def _overtake(self, count: int) -> list[InFlight]:
        """Take the oldest requests out of the order. Return those that the server should have answered."""
        overtaken = [self._in_flight.popleft() for _ in range(count)]
        self._overtaken.extend(overtaken)
        return [one for one in overtaken if not one.may_lack_answer]

    def _answer(self, frame: Frame, request: InFlight) -> list[Defect]:
        shape, defects = response_form(frame.data, request.api_key, request.version)
        if shape is None:
            self._forget(request.api_key)
            return defects
        found, message, _ = self._read(frame, shape, request)
        defects += found
        if message is None:
            self._forget(request.api_key)
            return defects
        values = error_code_defects(message, request.api_key, shape.codec.version)
        throttle_ms: int = getattr(message, "throttle_time_ms", 0)
        values += throttle_defects(throttle_ms)
        if throttle_ms > 0:
            cause = f"{request.api} v{request.version}, correlation id {request.correlation_id}"
            cause += throttle_place(frame.data, shape)
            self._throttle.response(request.api_key, request.version, throttle_ms, frame.ended_ns, cause)
        self._remember(message, request)
        return defects + (located(frame.data, shape, values, {}) if values else [])

    def _remember(self, message: Any, request: InFlight) -> None:
        """Keep the facts of a response that later requests are compared with."""
        if request.api_key == ApiKey.API_VERSIONS:
            self._versions.offered(message)
        elif request.api_key == ApiKey.PRODUCE:
            self._producers.answered(request.batches, message)
        elif request.api_key == ApiKey.SASL_HANDSHAKE:
            self._sasl.handshake_answered(request.version, message.error_code)
        elif request.api_key == ApiKey.SASL_AUTHENTICATE:
            self._sasl.authenticated(message.error_code)

    # Both

    def _forget(self, api_key: int) -> None:
        """Take a response that cannot be read: what it may have said excuses later requests."""
        if api_key == ApiKey.API_VERSIONS:
            self._versions = Versions()
        elif api_key in SASL_EXCHANGE:
            self._sasl.give_up()

    def _read(
        self, frame: Frame, shape: Form, request: InFlight
    ) -> tuple[list[Defect], Message | None, list[ProducedBatch]]:
        """Return (defects of a frame's bytes and of its records; message or None; a Produce request's batches
        that have a producer id).
        """
        if not frame.whole:
            text = "The frame is too long to be checked."
            return [Defect(R.FRAME_TOO_LARGE, text, "", 0, f"at most {FRAME_MAX} bytes", "more")], None, []
        result = read(frame.data, shape)
        batches: list[ProducedBatch] = []
        defects = result.defects
        has_records = (
            request.api_key == ApiKey.PRODUCE if shape.kind == "request" else request.api_key in _FETCHES
        )
        if has_records and result.message is not None:
            found, sizes, batches = records_defects(
                result.message, request.api_key, request.api, request.version, self._producers
            )
            if found:
                defects = defects + located(frame.data, shape, found, sizes)
        return defects, result.message, batches

    def _place(self, side: Side, time_ns: int, request: InFlight, defect: Defect, data: bytes = b"") -> None:
        """Report a defect of a frame."""
        self._report(
            Finding(
                rule=defect.rule,
                severity=RULES[defect.rule].severity,
                connection=self._number,
                time_ns=time_ns,
                side=side,
                api=request.api,
                version=request.version,
                correlation_id=request.correlation_id,
                message=defect.message,
                path=defect.path,
                offset=defect.offset,
                expected=defect.expected,
                found=defect.found,
                context=hex_around(data, defect.offset),
            )
        )


def _may_lack_answer(api_key: int, message: Message | None, *, known: bool) -> bool:
    """Return True if no answer to a request may be recorded: the request cannot be read, or it tells which
    node the client expects (KIP-1242). `weir capture` answers such requests itself, and records only what it
    reads.
    """
    if message is None:
        return not known or api_key == ApiKey.PRODUCE
    return isinstance(message, ApiVersionsRequest) and (
        message.cluster_id is not None or message.node_id != -1
    )


def _unknown(api_key: int, version: int) -> Sequence[Defect]:
    """Return the defects of a request that the schemas lack. ApiVersions may ask for any version."""
    if versions(api_key) is None:
        text = "The client uses an API that Weir does not know; its contents are not checked."
        return [Defect(R.UNKNOWN_API, text, "header.request_api_key", 4, "a known API", str(api_key))]
    if api_key == ApiKey.API_VERSIONS:
        return []
    text = "The client uses a version that Weir does not know; its contents are not checked."
    return [Defect(R.UNKNOWN_VERSION, text, "header.request_api_version", 6, "a known version", str(version))]
