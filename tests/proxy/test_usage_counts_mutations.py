"""Mutations are counted whether or not there is a quota, and clients notice nothing."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kfake.controller import NODE, Controller
from tests.kfake.direct import Client
from tests.mutations.requests import Create, Delete, Topic
from tests.properties import examples
from tests.protocol.generate import messages
from tests.proxy.broker_versions import broker_of
from tests.proxy.fuzzed_requests import asked as any_request
from tests.proxy.fuzzed_requests import closed, damaged
from tests.proxy.mutation_steps import RATE, SAMPLES, STEPS, mutation_of
from tests.proxy.usage_totals import Taken, recorded, total, total_traced
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import framed, head_of, padded, request, response, split
from weir.protocol.api import ApiKey
from weir.protocol.codec import response_type
from weir.protocol.messages import CreateTopicsRequest, DeleteTopicsRequest
from weir.protocol.versions import VersionRange
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.proxy.counters import Counters
from weir.proxy.handlers.mutations.cluster_state import ClusterState
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.uplift.uplift_rule import offered
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable
from weir.quotas.client_quotas import mutation_rates

PROPERTY: Final = examples(80)
APP: Final = Entity(client_id="app")


class Side:
    """Weir, under one mutation quota or none, in front of a controller of its own."""

    def __init__(
        self,
        rate: float | None = None,
        *,
        recorded: bool = False,
        spoken: dict[int, VersionRange] | None = None,
    ) -> None:
        table = QuotaTable({} if rate is None else {(APP, QuotaKey.CONTROLLER_MUTATION_RATE): rate})
        self.quotas = BrokerQuotas.create(table, mutations=mutation_rates(SAMPLES, 1))
        self.plans = Plans(Counters(), uplift=spoken is not None)
        self.controller = Controller() if spoken is None else Controller(spoken=spoken)
        self.taken = Taken(UsageRegistries(trace_share=1.0)) if recorded else None

    def ask(self, now_ms: int, frame: bytes) -> tuple[list[bytes], int]:
        """What a request on a connection of its own is told, and until when its client is muted."""
        session = new_connection(quotas=self.quotas, plans=self.plans, node_id=NODE)
        if self.taken is not None:
            recorded(session, self.taken.registries)
        told = Client(session, self.controller).send(now_ms, frame)
        session.end(now_ms)
        return told, session.throttled_until_ms

    @property
    def sums(self) -> dict[str, float]:
        assert self.taken is not None
        self.taken.drain()
        return total(self.taken.records)

    @property
    def budget(self) -> tuple[float, int, int, int]:
        (budget,) = self.quotas.mutations
        return budget.charged, budget.refused, budget.throttled, budget.throttle_ms_total


@PROPERTY
@given(st.lists(STEPS, min_size=1, max_size=12))
def test_usage_counts_mutations_as_a_quota_would_charge_them(steps: list[tuple[int, object]]) -> None:
    plain, counted, huge = Side(), Side(recorded=True), Side(1e12, recorded=True)
    now_ms = 1_000_000
    for pause_ms, what in steps:
        now_ms += pause_ms
        frame = mutation_of(what, plain.controller).frame("app")  # type: ignore[arg-type]  # one of three
        assert plain.ask(now_ms, frame) == counted.ask(now_ms, frame)
        huge.ask(now_ms, frame)
        assert counted.controller.sizes() == plain.controller.sizes()
    sums = counted.sums
    charged = huge.budget[0] if huge.quotas.mutations else 0
    assert sums.get("mutations", 0) == huge.sums.get("mutations", 0) == charged
    assert not any(name.startswith("controller_mutation_rate") for name in sums)
    assert counted.taken is not None
    assert total_traced(counted.taken.traces).get("mutations", 0) == sums.get("mutations", 0)


@PROPERTY
@given(st.lists(STEPS, min_size=1, max_size=12))
def test_waits_and_refusals_of_a_mutation_quota_are_counted(steps: list[tuple[int, object]]) -> None:
    plain, counted = Side(RATE), Side(RATE, recorded=True)
    now_ms = 1_000_000
    for pause_ms, what in steps:
        now_ms += pause_ms
        frame = mutation_of(what, plain.controller).frame("app")  # type: ignore[arg-type]  # one of three
        assert plain.ask(now_ms, frame) == counted.ask(now_ms, frame)
    assert counted.budget == plain.budget
    charged, _refused, _throttled, throttle_ms = counted.budget
    assert counted.sums.get("mutations", 0) == charged
    assert counted.sums.get("controller_mutation_rate ms", 0) == throttle_ms


@pytest.mark.parametrize("release", [(0, 10, 2), (1, 1), (2, 8)])
@PROPERTY
@given(steps=st.lists(STEPS, min_size=1, max_size=6))
def test_uplifted_mutations_are_answered_as_without_usage(
    release: tuple[int, ...], steps: list[tuple[int, object]]
) -> None:
    plain, counted = Side(spoken=broker_of(release)), Side(spoken=broker_of(release), recorded=True)
    offered_ = offered(broker_of(release), uplift=True)
    now_ms, asked_ = 1_000_000, 0
    for pause_ms, what in steps:
        now_ms += pause_ms
        frame = mutation_of(what, plain.controller).frame("app")  # type: ignore[arg-type]  # one of three
        head = head_of(frame)
        if head.version in offered_.get(head.api_key, ()):
            asked_ += 1
            assert plain.ask(now_ms, frame) == counted.ask(now_ms, frame)
            assert counted.controller.sizes() == plain.controller.sizes()
    assert counted.sums.get("requests", 0) == asked_


def test_unreadable_or_large_mutations_pass_uncounted() -> None:
    unread = framed(request(DeleteTopicsRequest(topic_names=["t"]), 5)[4:-5])
    large = padded(request(CreateTopicsRequest(), 5), 1024 * 1024 + 1)
    for frame in (unread, large):
        taken = Taken(UsageRegistries())
        wire = Wire(recorded(new_connection(), taken.registries))
        wire.feed(1, client=frame)
        taken.drain()
        assert bytes(wire.to_broker) == frame
        assert total(taken.records) == {"requests": 1, "bytes_in": len(frame)}


def test_a_mutation_request_in_pieces_is_counted_once() -> None:
    side = Side(recorded=True)
    assert side.taken is not None
    session = recorded(
        new_connection(quotas=side.quotas, plans=side.plans, node_id=NODE), side.taken.registries
    )
    connection = Client(session, side.controller)
    frame = Create(tuple(Topic(f"t{number}", 2) for number in range(9000))).frame("app")
    assert len(frame) > session.limits.stream_above_bytes / 2
    for start in range(0, len(frame), 10_000):
        told = connection.send(1, frame[start : start + 10_000])
    sums = side.sums
    assert (sums["requests"], sums["bytes_in"], sums["mutations"]) == (1, len(frame), 18_000)
    assert sums["bytes_out"] == len(told[0])


def test_mutations_forwarded_before_their_client_left_are_counted() -> None:
    """A broker does it all the same."""
    frame = Create((Topic("t", 5),)).frame("app")
    for rate in (None, 1e12, 0.1):
        side = Side(rate, recorded=True)
        assert side.taken is not None
        session = recorded(
            new_connection(quotas=side.quotas, plans=side.plans, node_id=NODE), side.taken.registries
        )
        wire = Wire(session)
        wire.feed(1, client=frame)
        assert bytes(wire.to_broker) == frame
        session.end(1)
        sums = side.sums
        assert sums["requests"] == 1
        assert sums["request_time_us"] > 0
        assert sums["mutations"] == total_traced(side.taken.traces)["mutations"] == 5
        if side.quotas.mutations:
            assert side.budget[0] == 5
            assert sums.get("controller_mutation_rate ms", 0) == side.budget[3]


def test_mutations_not_forwarded_before_their_client_left_are_not_counted() -> None:
    for rate in (None, 1e12):
        side = Side(rate, recorded=True)
        assert side.taken is not None
        session = recorded(
            new_connection(quotas=side.quotas, plans=side.plans, node_id=NODE), side.taken.registries
        )
        wire = Wire(session)
        wire.feed(1, client=Delete(("t",)).frame("app"))
        assert head_of(bytes(wire.to_broker)).api_key == ApiKey.API_VERSIONS
        session.end(1)
        assert "mutations" not in side.sums


def test_deletions_are_counted_by_the_partitions_of_existing_topics() -> None:
    side = Side(recorded=True)
    side.ask(1, Create((Topic("t", 7),)).frame("app"))
    side.ask(2, Delete(("t", "unknown")).frame("app"))
    assert side.sums["mutations"] == 14


@given(
    st.lists(any_request(), min_size=1, max_size=4),
    st.sampled_from([None, (0, 10, 2), (1, 1), (2, 8)]),
    st.data(),
)
@examples(100)
def test_usage_totals_are_right_for_any_bytes(
    requests: list[tuple[object, int]], release: tuple[int, ...] | None, data: st.DataObject
) -> None:
    """Requests that become queries, damaged ones, answers that make no sense: all that went by is counted,
    and each request has its trace. Of one that only its connection's end keeps from being judged again, what
    was asked before is counted, but no request.
    """
    plans = Plans(Counters(), uplift=release is not None, cluster=ClusterState(data.draw(st.booleans())))
    taken = Taken(UsageRegistries(trace_share=1.0))
    session = recorded(new_connection(plans=plans, node_id=NODE), taken.registries)
    wire = Wire(session)
    sent = [damaged(data, request(message, version, n)) for n, (message, version) in enumerate(requests)]  # type: ignore[arg-type]  # messages
    wire.feed(1, client=b"".join(sent))
    answered = 0
    for _ in range(100):
        questions = split(bytes(wire.to_broker)[answered:])
        answered = len(wire.to_broker)
        if not questions or closed(session):
            break
        for question in questions:
            head = head_of(question)
            answer = data.draw(messages(response_type(head.api_key), head.version))
            wire.feed(1, broker=damaged(data, response(answer, head.version, head.correlation_id)))
            if closed(session):
                break
    session.end(2)
    taken.drain()
    taken.drain()
    sums, traced = total(taken.records), total_traced(taken.traces)
    taken_in = len(b"".join(sent)) - wire.waiting_bytes
    assert len(taken.traces) == sums.get("requests", 0)
    assert sums.get("bytes_in", 0) == traced.get("bytes_in", 0)
    if not closed(session):
        assert sums["request_time_us"] == pytest.approx(traced["request_time_us"], abs=0.1)
        assert sums["bytes_in"] == taken_in
        assert sums.get("bytes_out", 0) == len(wire.to_client)
