"""Whatever a client and a broker say, errands end in answers or in one violation, never in an exception."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.api import ApiKey, versions
from protocol.codec import request_type, response_type
from proxy.counters import Counters
from proxy.rules.cluster_state import ClusterState
from proxy.rules.plans import Plans
from quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable
from tests.protocol.generate import messages
from tests.proxy.controller import NODE
from tests.proxy.frames import framed, head_of, request, response, split
from tests.proxy.test_uplift_rule import broker_of
from tests.proxy.wire import Wire, new_session

if TYPE_CHECKING:
    from protocol.messages import Message
    from proxy.session.session import Session

KEYS: Final = (
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_TOPICS,
)
TABLE: Final = QuotaTable({(Entity(client_id="app"), QuotaKey.CONTROLLER_MUTATION_RATE): 0.5})
PROPERTY: Final = settings(
    max_examples=300,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@st.composite
def asked(draw: st.DrawFn) -> tuple[Message, int]:
    """Any request that may become an errand, and its version."""
    key = draw(st.sampled_from(KEYS))
    known = versions(key)
    assert known is not None
    version = draw(st.integers(known.min, known.max))
    return draw(messages(request_type(key), version)), version


def damaged(data: st.DataObject, frame: bytes) -> bytes:
    """The same, or with some bytes cut off or changed, in a frame that is whole."""
    payload = bytearray(frame[4:])
    match data.draw(st.sampled_from(["sound", "sound", "sound", "cut", "changed"])):
        case "cut":
            del payload[data.draw(st.integers(8, max(len(payload), 8))) :]
        case "changed" if len(payload) > 14:
            payload[data.draw(st.integers(14, len(payload) - 1))] = data.draw(st.integers(0, 255))
    return framed(bytes(payload))


def closed(session: Session) -> bool:
    """Whether it is to be closed."""
    return session.violation is not None


@given(
    st.lists(asked(), min_size=1, max_size=4), st.sampled_from([None, (0, 10, 2), (1, 1), (2, 8)]), st.data()
)
@PROPERTY
def test_errands_end_whatever_is_said(
    requests: list[tuple[Message, int]], release: tuple[int, ...] | None, data: st.DataObject
) -> None:
    plans = Plans(Counters(), uplift=release is not None, cluster=ClusterState(data.draw(st.booleans())))
    if release is not None and data.draw(st.booleans()):
        plans = plans.for_broker(broker_of(release))
    session = new_session(quotas=BrokerQuotas.create(TABLE), plans=plans, node_id=NODE)
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
            if session.muted_until_ms <= now_ms:
                break
            now_ms = session.muted_until_ms
            wire.feed(now_ms)
        for question in questions:
            head = head_of(question)
            answer = data.draw(messages(response_type(head.api_key), head.version))
            wire.feed(now_ms, broker=damaged(data, response(answer, head.version, head.correlation_id)))
            if closed(session):
                return
    assert session.idle
    assert len(split(bytes(wire.to_client))) == len(sent)
