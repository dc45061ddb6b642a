"""Mutations are counted whether or not there is a quota, and clients notice nothing."""

from __future__ import annotations

from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kfake.controller import NODE, Controller
from tests.kfake.direct import Client
from tests.mutations.requests import Create, Delete, Topic
from tests.proxy.mutation_steps import RATE, SAMPLES, STEPS, mutation_of
from tests.proxy.usage_totals import Taken, recorded, total, total_traced
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import framed, head_of, padded, request
from weir.protocol.api import ApiKey
from weir.protocol.messages import CreateTopicsRequest, DeleteTopicsRequest
from weir.protocol.versions import VersionRange
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable
from weir.quotas.client_quotas import mutation_rates

PROPERTY: Final = settings(max_examples=20)
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
