"""Shadow quotas on the wire: everything is as without quotas, and counted as if they were enforced."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kfake.controller import NODE, Controller
from tests.proxy.mutation_cluster import Cluster
from tests.proxy.mutation_steps import RATE, SAMPLES, STEPS, mutation_of
from tests.proxy.playbook import Playbook
from tests.proxy.request_costs import EACH_US, LIMIT, LIMIT_US, percent, spend, time_table, timed
from tests.proxy.wire import APP, Wire, new_connection, quota_table
from tests.quotas.changes import put_in_force
from tests.wire.frames import framed, head_of, header, request, split
from tests.wire.messages import fetch, fetched, ping, pong, produce, produced
from weir.protocol.messages import CreateTopicsRequest, MetadataRequest
from weir.proxy import run
from weir.proxy.config import config
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.state import State
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.handlers.mutations import decoded_requests
from weir.quotas import DEFAULT, Budget, Entity, MutationBudget, QuotaKey, QuotaTable
from weir.quotas.table.bounded_names import EMPTY

PROPERTY: Final = settings(max_examples=50)


def shadowed(table: QuotaTable) -> QuotaTable:
    return QuotaTable(None, table.values)


def shadow_of(connection: Connection, key: str) -> Budget:
    (budget,) = getattr(connection.quotas, key).shadow
    return budget  # type: ignore[no-any-return]  # of a ClientQuotas


# Bandwidth


def test_a_change_between_shadow_and_enforced_reaches_an_open_connection() -> None:
    with Playbook(shadowed(quota_table(produce=1000))) as play:
        play.forwards(produce(1, 9000))
        put_in_force(play.connection.quotas, quota_table(produce=1000))
        play.client(produce(2, 2000))  # 11 s' worth in all
        play.to_broker(produce(2, 2000))
        play.muted_until(1000)
        put_in_force(play.connection.quotas, shadowed(quota_table(produce=1000)))
        play.at(1000)
        play.forwards(produce(3, 9000))


# Request time


def test_enforced_and_shadow_request_time_are_both_charged() -> None:
    table = QuotaTable(time_table().values, time_table(LIMIT / 2).values)
    with Playbook(connection=timed(table)) as play:
        spend(play.connection)
        play.relays(ping(), pong(), told=pong(throttle_ms=500))
        play.muted_until(500)
        shadow = shadow_of(play.connection, "request")
        assert round(shadow.charged, 9) == percent(LIMIT_US + EACH_US)
        assert shadow.throttled == 2


class Step(NamedTuple):
    pause_ms: int
    kind: str
    size: int
    version: int


Steps: TypeAlias = list[Step]
STORY: Final = st.lists(
    st.builds(
        Step,
        st.sampled_from([0, 0, 1, 300, 1000, 4000, 15_000]),
        st.sampled_from(["produce", "unanswered", "fetch", "ping"]),
        st.integers(100, 9000),
        st.sampled_from([3, 7, 11]),
    ),
    min_size=1,
    max_size=25,
)


class Traffic:
    def __init__(self, table: QuotaTable, buffer_bytes: int) -> None:
        self.connection = new_connection(table, buffer_bytes=buffer_bytes)
        self.wire = Wire(self.connection)
        self.answers: dict[int, bytes] = {}
        self.to_broker = b""
        self._answered = 0

    def do(self, now_ms: int, number: int, step: Step) -> None:
        frame, answer = self._frames(number, step)
        if answer is not None:
            self.answers[number] = answer
        self.wire.feed(now_ms, client=frame)
        while self.wire.to_broker:
            self.to_broker += bytes(self.wire.to_broker)
            self.wire.to_broker.clear()
            for asked in split(self.to_broker[self._answered :]):
                if len(asked) < 4 or len(asked) < 4 + int.from_bytes(asked[:4], "big"):
                    break
                self._answered += len(asked)
                told = self.answers.pop(head_of(asked).correlation_id, None)
                if told is not None:
                    self.wire.feed(now_ms, broker=told)

    def _frames(self, number: int, step: Step) -> tuple[bytes, bytes | None]:
        match step.kind:
            case "produce":
                return produce(number, step.size, step.version), produced(number, version=step.version)
            case "unanswered":
                return produce(number, step.size, step.version, acks=0), None
            case "fetch":
                return fetch(number, 11, 2**31 - 1), fetched(number, step.size)
        return ping(number), pong(number)


def figures(budget: Budget | None, now_ms: int) -> tuple[float, ...]:
    if budget is None:
        return (0, 0, 0, 0, 0)
    return (budget.charged, budget.throttled, budget.throttle_ms_total, budget.limit, budget.rate(now_ms))


@given(
    STORY,
    st.sampled_from([300, 256 * 1024]),
    st.sampled_from([500.0, 3000.0, 1e6]),
    st.sampled_from([None, 0.001, 0.01, 50.0]),
)
@PROPERTY
def test_shadow_quotas_leave_the_wire_unchanged_and_count_as_enforced_ones(
    story: Steps, buffer_bytes: int, rate: float, time: float | None
) -> None:
    """The figures for as long as nothing is throttled; afterwards the enforced client is another one."""
    times = time_table(time).values if time is not None else {}
    table = QuotaTable({**quota_table(produce=rate, fetch=rate).values, **times})
    plain, shadow, enforced = (Traffic(each, buffer_bytes) for each in (QuotaTable(), shadowed(table), table))
    now_ms, throttled = 0, False
    for number, step in enumerate(story):
        now_ms += step.pause_ms
        for traffic in (plain, shadow, enforced):
            traffic.do(now_ms, number, step)
        assert shadow.to_broker == plain.to_broker
        assert shadow.wire.to_client == plain.wire.to_client
        connection = shadow.connection
        assert (connection.throttled_until_ms, connection.broker_end.held_until_ms, connection.state) == (
            0,
            0,
            State.OPEN,
        )
        assert (connection.effects.close_reason, connection.counters.throttles) == (None, 0)
        throttled = throttled or enforced.connection.counters.throttles > 0
        for key in () if throttled else ("produce", "fetch", "request"):
            client_quotas = getattr(enforced.connection.quotas, key)
            counted = next(iter(getattr(connection.quotas, key).shadow), None)
            assert figures(counted, now_ms) == figures(next(iter(client_quotas), None), now_ms)


# Mutations


class Shadowed(Cluster):
    """A controller without quota behind Weir, whose clients have connections of their own."""

    def __init__(self, table: QuotaTable) -> None:
        super().__init__(table=table, samples=SAMPLES, controller=Controller())

    def send(self, now_ms: int, frame: bytes) -> tuple[bytes, int]:
        """One request on a connection of its own: the response, and until when the connection is mute."""
        connection = self.connect()
        (told,) = connection.send(now_ms, frame)
        return told, connection.connection.throttled_until_ms

    @property
    def shadow(self) -> MutationBudget:
        assert self.quotas.mutations.shadow is not None
        (budget,) = self.quotas.mutations.shadow
        return budget


MUTATIONS: Final = QuotaTable({(APP, QuotaKey.CONTROLLER_MUTATION_RATE): RATE})


@given(st.lists(STEPS, min_size=1, max_size=10))
@PROPERTY
def test_shadow_mutation_quotas_leave_results_unchanged_and_count_as_enforced(
    steps: list[tuple[int, object]],
) -> None:
    plain, shadow, enforced = (Shadowed(each) for each in (QuotaTable(), shadowed(MUTATIONS), MUTATIONS))
    now_ms, same = 1_000_000, True
    for pause_ms, what in steps:
        now_ms += pause_ms
        frame = mutation_of(what, plain.controller).frame("app")  # type: ignore[arg-type]  # one of three
        assert shadow.send(now_ms, frame) == plain.send(now_ms, frame)
        assert shadow.controller.sizes() == plain.controller.sizes()
        if not same:
            continue
        enforced.send(now_ms, frame)
        budget = enforced.quotas.mutations.budget("ANONYMOUS", "app", now_ms)
        assert budget is not None
        same = not (budget.throttled or budget.refused)
        if same:
            # What is charged and given back may differ in the last bit.
            assert shadow.shadow.tokens(now_ms) == pytest.approx(budget.tokens(now_ms), abs=1e-6)
            assert shadow.shadow.charged == budget.charged
            assert (shadow.shadow.throttled, shadow.shadow.refused) == (0, 0)


def test_an_unreadable_or_large_mutation_under_a_shadow_quota_passes_uncounted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoded_requests, "COUNTED_BYTES_MAX", 100)
    long = request(CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="x" * 200)]), 4)
    unreadable = framed(header(19, 4, 1, b"app", tags=None) + b"\x7f\xff")
    for frame in (long, unreadable):
        with Playbook(shadowed(MUTATIONS)) as play:
            play.forwards(frame)


def test_auto_created_topics_are_counted_by_a_shadow_quota() -> None:
    """Three partitions each, ten tokens: the fourth would have had its client wait."""
    cluster, plain = Shadowed(shadowed(MUTATIONS)), Shadowed(QuotaTable())
    for name in ("a", "b", "c", "d", "e", "e"):
        wanted = [MetadataRequest.MetadataRequestTopic(name=name)]
        frame = request(MetadataRequest(topics=wanted), 12)
        for each in (cluster, plain):
            each.send(0, frame)
        assert cluster.send(0, frame) == plain.send(0, frame)
    assert set(cluster.controller.sizes()) == set("abcde")
    assert cluster.shadow.throttled > 0
    assert cluster.shadow.charged == 12


# The registry


def test_all_quotas_can_be_put_in_shadow() -> None:
    registry = QuotaRegistry(quota_table(produce=1000.0), in_shadow=True)
    assert registry.table == quota_table(produce=1000.0), "what is configured"
    quotas = registry.of(1)
    for rate in (1000.0, 500.0):
        ledger = quotas.ledger("ANONYMOUS", "app", 0)
        assert ledger.produce is None
        assert ledger.shadow is not None
        assert isinstance(ledger.shadow.produce, Budget)
        assert ledger.shadow.produce.limit == rate
        put_in_force(registry, quota_table(produce=500.0))
    assert registry.table == quota_table(produce=500.0)
    assert registry.in_force == shadowed(quota_table(produce=500.0))


def test_the_configuration_can_put_all_quotas_in_shadow() -> None:
    table = quota_table(produce=1000.0, entity=Entity(client_id=DEFAULT))
    options = {"upstream": "kafka:9092"}
    plain = run.quota_registry(config.load(None, options), table)
    assert (plain.in_force, plain.of(1).unnamed) == (table, "")
    options |= {"quota_mode": "shadow", "empty_client_id": "default"}
    registry = run.quota_registry(config.load(None, options), table)
    assert (registry.in_force, registry.of(1).unnamed) == (shadowed(table), EMPTY)


@pytest.mark.parametrize("length", [0, -1, -2], ids=["empty", "null", "negative"])
def test_default_quotas_can_be_configured_for_clients_without_a_client_id(length: int) -> None:
    """Brokers read each negative length as null."""
    table = quota_table(produce=1000, entity=Entity(client_id=DEFAULT))
    for unnamed, muted_until_ms in (("", 0), (EMPTY, 1000)):
        registry = QuotaRegistry(table, unnamed=unnamed)
        wire = Wire(new_connection(quotas=registry.of(NODE)))
        head = header(0, 7, 1, b"", tags=None)[:-2] + length.to_bytes(2, signed=True)
        frame = framed(head + produce(1, 11_000)[4 + 8 + 2 + 3 :])
        frame = framed(frame[4:] + bytes(11_000 - len(frame) + 4))
        wire.feed(0, client=frame)
        assert wire.to_broker == frame
        assert wire.connection.throttled_until_ms == muted_until_ms
