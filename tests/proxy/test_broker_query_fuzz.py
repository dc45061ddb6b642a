"""Whatever a client and a broker say, queries end in answers or in one violation, never in an exception."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from tests.kfake.controller import NODE
from tests.properties import examples
from tests.protocol.generate import messages
from tests.proxy.broker_versions import broker_of
from tests.proxy.fuzzed_requests import asked, closed, damaged
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import head_of, request, response, split
from weir.protocol.codec import response_type
from weir.protocol.messages import Message
from weir.proxy.counters import Counters
from weir.proxy.handlers.mutations.cluster_state import ClusterState
from weir.proxy.handlers.plans import Plans
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable

TABLE: Final = QuotaTable({(Entity(client_id="app"), QuotaKey.CONTROLLER_MUTATION_RATE): 0.5})
PROPERTY: Final = examples(200)


@given(
    st.lists(asked(), min_size=1, max_size=4), st.sampled_from([None, (0, 10, 2), (1, 1), (2, 8)]), st.data()
)
@PROPERTY
def test_broker_queries_end_in_responses_or_a_violation_for_any_bytes(
    requests: list[tuple[Message, int]], release: tuple[int, ...] | None, data: st.DataObject
) -> None:
    plans = Plans(Counters(), uplift=release is not None, cluster=ClusterState(data.draw(st.booleans())))
    if release is not None and data.draw(st.booleans()):
        plans = plans.for_broker(broker_of(release))
    session = new_connection(quotas=BrokerQuotas.create(TABLE), plans=plans, node_id=NODE)
    wire = Wire(session)
    sent = [
        damaged(data, request(message, version, number)) for number, (message, version) in enumerate(requests)
    ]
    now_ms = 0
    wire.feed(now_ms, client=b"".join(sent))
    for _ in range(100):
        questions = split(bytes(wire.to_broker))
        wire.to_broker.clear()
        if closed(session):
            return
        if not questions:
            if session.throttled_until_ms <= now_ms:
                break
            now_ms = session.throttled_until_ms
            wire.feed(now_ms)
        for question in questions:
            head = head_of(question)
            answer = data.draw(messages(response_type(head.api_key), head.version))
            wire.feed(now_ms, broker=damaged(data, response(answer, head.version, head.correlation_id)))
            if closed(session):
                return
    assert session.idle
    assert len(split(bytes(wire.to_client))) == len(sent)
