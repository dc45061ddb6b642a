"""Whatever clients do, and however their bytes are cut: requests are charged what a model of a few lines
says, and waited for as long as Kafka's formula says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proxy.request_costs import charged_us, costs, percent, time_table, timed
from tests.proxy.wire import Wire
from tests.wire.frames import (
    padded,
    request,
    response,
    unknown_request,
    unknown_response,
)
from tests.wire.messages import ping
from weir.protocol.messages import (
    FetchRequest,
    FetchResponse,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from weir.quotas import Budget
from weir.quotas.broker_quotas import BrokerQuotas
from weir.quotas.costs.request_costs import ApiCost, ColdCost
from weir.quotas.table.entities import Tags

MODEL: Final = settings(max_examples=38)

# The model: µs, µs per kB asked, µs per kB answered
PER_API: Final = {
    "Heartbeat": (17.0, 0.0, 0.0),
    "Metadata": (15.0, 1000 / 512, 5000 / 512),
    "Produce": (21.0, 1000 / 512, 0.0),
    "Fetch": (16.0, 2000 / 512, 1000 / 4096),
    "the rest": (30.0, 1000 / 16384, 1000 / 16384),
}
"""A byte costs a power of two, and so does a cold start: sums are exact, in whatever order they are made.
Otherwise a throttle time of half a millisecond is rounded down by one order and up by the other.
"""
COLD_US, COLD_FROM_US, COLD_FULL_US = 64.0, 300.0, 2048.0
COSTS: Final = costs(
    {
        name: ApiCost(us=us, us_per_request_kb=asked, us_per_response_kb=answered)
        for name, (us, asked, answered) in PER_API.items()
        if name != "the rest"
    },
    rest=ApiCost(us=30.0, us_per_request_kb=1000 / 16384, us_per_response_kb=1000 / 16384),
    cold=ColdCost(us=COLD_US, from_us=COLD_FROM_US, full_us=COLD_FULL_US),
)


def cost_us(name: str, asked: bytes, answered: bytes, gap_us: float) -> float:
    us, per_asked, per_answered = PER_API[name]
    cold = 0.0 if gap_us < COLD_FROM_US else COLD_US * min(1.0, gap_us / COLD_FULL_US)
    return us + per_asked * (len(asked) - 4) / 1000 + per_answered * (len(answered) - 4) / 1000 + cold


class Step(NamedTuple):
    """A request, how long after the last answer, and how long its own takes."""

    pause_us: int
    kind: str
    asked_bytes: int
    answered_bytes: int
    takes_ms: int
    anew: bool
    """On a new connection."""


STEPS: Final = st.lists(
    st.builds(
        Step,
        st.sampled_from([0, 0, 100, 299, 300, 700, 2000, 90_000, 1_000_000, 4_300_000, 12_000_000]),
        st.sampled_from(["Heartbeat", "Metadata", "Produce", "Fetch", "the rest", "unanswered", "of others"]),
        st.sampled_from([100, 1000, 20_000]),
        st.sampled_from([100, 1000, 5000, 70_000]),
        st.sampled_from([0, 0, 1, 30, 600]),
        st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=40,
)


def exchange(step: Step) -> tuple[bytes, bytes]:
    plain: dict[str, tuple[bytes, bytes]] = {
        "Heartbeat": (ping(), response(HeartbeatResponse(), 4)),
        "of others": (ping(1, b"other"), response(HeartbeatResponse(), 4)),
        "Metadata": (request(MetadataRequest(), 5), response(MetadataResponse(), 5)),
        "Produce": (request(ProduceRequest(acks=1), 7), response(ProduceResponse(), 7)),
        "unanswered": (request(ProduceRequest(acks=0), 7), b""),
        "Fetch": (request(FetchRequest(), 11), response(FetchResponse(), 11)),
        "the rest": (unknown_request(999, 1), unknown_response()),
    }
    asked, answered = plain[step.kind]
    if step.kind == "Produce":
        return padded(asked, step.asked_bytes), answered
    return padded(asked, step.asked_bytes), answered and padded(answered, step.answered_bytes)


@dataclass
class Model:
    limit: float
    total_us: float = 0.0
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        """Kafka's rate and throttle time, bounded by one window; held to its vectors elsewhere."""
        self.budget = Budget(Tags("", "app"), self.limit, 0, throttle_ms_max=1000)

    def charge(self, us: float, now_ms: int) -> int:
        """Return how many ms to wait."""
        self.total_us += us
        return self.budget.charge(percent(us), now_ms)


@MODEL
@given(steps=STEPS, limit=st.sampled_from([0.0005, 0.002, 0.01, 0.5]))
def test_request_time_charges_and_throttles_equal_a_model(steps: list[Step], limit: float) -> None:
    quotas = BrokerQuotas.create(time_table(limit))
    model, now_us, forwarded_us = Model(limit), 1_000_000, 0
    connection, muted_until_ms = timed(quotas=quotas, costs_=COSTS), 0
    wire, begun = Wire(connection), False

    def feed(client: bytes = b"", broker: bytes = b"") -> None:
        connection.clock.now_us = now_us
        wire.feed(now_us // 1000, client=client, broker=broker)

    for step in steps:
        now_us += step.pause_us
        if step.anew:
            connection.end(now_us // 1000)
            connection, muted_until_ms = timed(quotas=quotas, costs_=COSTS), 0
            wire, begun = Wire(connection), False
        asked, answered = exchange(step)
        if not begun and step.kind not in ("of others", "unanswered"):
            muted_until_ms = max(model.budget.throttled_until_ms, muted_until_ms)
        begun = begun or step.kind != "unanswered" or model.budget.throttled_until_ms <= now_us // 1000
        feed(client=asked)
        if muted_until_ms > now_us // 1000:
            assert not wire.to_broker
            assert connection.throttled_until_ms == muted_until_ms
            now_us = muted_until_ms * 1000
            feed()
        assert bytes(wire.to_broker) == asked
        wire.to_broker.clear()
        gap_us, forwarded_us = now_us - forwarded_us, now_us
        now_us += step.takes_ms * 1000
        feed(broker=answered)
        if step.kind not in ("unanswered", "of others"):
            throttle_ms = model.charge(cost_us(step.kind, asked, answered, gap_us), now_us // 1000)
            if throttle_ms:
                muted_until_ms = max(muted_until_ms, now_us // 1000 + throttle_ms)
                assert connection.throttled_until_ms == muted_until_ms
        assert connection.throttled_until_ms <= max(muted_until_ms, 0)
        assert connection.idle
    assert abs(charged_us(connection) - model.total_us) < 0.001
    if model.total_us:
        (budget,) = quotas.request
        assert budget.throttled == model.budget.throttled
        assert budget.throttle_ms_total == model.budget.throttle_ms_total
        assert budget.rate(now_us // 1000) == pytest.approx(model.budget.rate(now_us // 1000), rel=1e-9)


# However the bytes are cut
