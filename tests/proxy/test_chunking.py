"""However the two streams are cut and interleaved, the same bytes come out, the same is charged, and nothing
is left over.
"""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.properties import examples
from tests.proxy.conversations import SMALL_BYTES, TABLE, Conversation, Exchange, comparable, exchanges, whole
from tests.proxy.request_costs import VARIOUS, time_table, timed
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import request, response, unknown_request, unknown_response
from weir.protocol.messages import HeartbeatRequest, HeartbeatResponse, ProduceRequest
from weir.proxy.close_reasons import CloseReason

PROPERTY = examples(150)


_TOPIC = ProduceRequest.TopicProduceData(
    name="t", partition_data=[ProduceRequest.PartitionProduceData(records=bytes(900))]
)
OVERSHOOT = ProduceRequest(acks=0, topic_data=[_TOPIC])
TOLD_BY_ANOTHER = [
    Exchange(request(HeartbeatRequest(), 4, 100), response(HeartbeatResponse(), 4, 100)),
    Exchange(unknown_request(999, 1, 101, bytes(900)), unknown_response(101)),
    Exchange(request(OVERSHOOT, 8, 102, b"slow")),
]
"""The throttle of the last request is told by the first one's response, unless that has gone out by then."""


@PROPERTY
@given(script=exchanges(), cuts=st.lists(st.integers(1, 700), min_size=1))
@example(script=TOLD_BY_ANOTHER, cuts=[1])
def test_streams_cut_anywhere_give_equal_bytes_and_charges(script: list[Exchange], cuts: list[int]) -> None:
    def chunks() -> Any:
        while True:
            yield from cuts

    at_once = Conversation(script, whole(), new_connection(TABLE)).run()
    in_pieces = Conversation(script, chunks(), new_connection(TABLE, buffer_bytes=SMALL_BYTES)).run()
    assert at_once["violation"] is None
    assert at_once["left"] == 0
    assert at_once["idle"]
    assert comparable(script, in_pieces) == comparable(script, at_once)


@PROPERTY
@given(script=exchanges(), cuts=st.lists(st.integers(1, 50), min_size=1))
def test_unmodified_traffic_passes_byte_for_byte(script: list[Exchange], cuts: list[int]) -> None:
    """Without quotas and addresses, what goes in comes out."""
    plain = [e for e in script if e.asked[5] in {0, 1, 12, 0xE7} and not e.own]

    def chunks() -> Any:
        while True:
            yield from cuts

    plain = [e for e in plain if e.answer is None or b"kafka" not in e.answer]
    outcome = Conversation(plain, chunks(), new_connection(buffer_bytes=SMALL_BYTES)).run()
    assert outcome["to_broker"] == b"".join(e.asked for e in plain)
    assert outcome["to_client"] == b"".join(e.answer or b"" for e in plain)


@PROPERTY
@given(
    script=exchanges(),
    cuts=st.lists(st.integers(1, 700), min_size=1),
    at=st.integers(0, 10_000),
    with_=st.binary(min_size=1, max_size=30),
    is_timed=st.booleans(),
)
def test_hostile_bytes_from_a_client_end_in_a_violation_or_pass(
    script: list[Exchange], cuts: list[int], at: int, with_: bytes, is_timed: bool
) -> None:
    """Never in another exception, and never without bounds, with and without a cost of requests."""
    stream = b"".join(e.asked for e in script)
    at %= len(stream)
    stream = stream[:at] + with_ + stream[at + len(with_) :]
    connection = (
        timed(time_table(0.001), VARIOUS, buffer_bytes=SMALL_BYTES, frame_bytes_max=100_000)
        if is_timed
        else new_connection(TABLE, buffer_bytes=SMALL_BYTES, frame_bytes_max=100_000)
    )
    wire = Wire(connection)
    while stream and connection.violation is None:
        for cut in cuts:
            wire.feed(0, client=stream[:cut])
            stream = stream[cut:]
    if connection.violation is not None:
        assert connection.violation.reason.startswith(("request_", "tls_"))


@PROPERTY
@given(
    script=exchanges(),
    cuts=st.lists(st.integers(1, 700), min_size=1),
    at=st.integers(0, 10_000),
    with_=st.binary(min_size=1, max_size=30),
)
def test_hostile_bytes_from_a_broker_end_in_a_violation_or_pass(
    script: list[Exchange], cuts: list[int], at: int, with_: bytes
) -> None:
    answers = b"".join(e.answer or b"" for e in script)
    at %= len(answers) or 1
    answers = answers[:at] + with_ + answers[at + len(with_) :]
    connection = new_connection(buffer_bytes=SMALL_BYTES, response_bytes_max=100_000)
    wire = Wire(connection)
    wire.feed(0, client=b"".join(e.asked for e in script))
    while answers and connection.violation is None:
        for cut in cuts:
            wire.feed(0, broker=answers[:cut])
            answers = answers[cut:]
    if connection.violation is not None:
        assert connection.violation.reason in {
            CloseReason.RESPONSE_MALFORMED,
            CloseReason.RESPONSE_LENGTH_WRONG,
            CloseReason.RESPONSE_UNEXPECTED,
        }
