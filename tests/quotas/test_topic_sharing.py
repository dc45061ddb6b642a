"""Several Weirs share the rates of topics, as they share quotas of clients."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.workers.charges import ChargeReader
from weir.quotas import Entity, QuotaKey, QuotaTable
from weir.quotas.limiters.budgets import Budget
from weir.quotas.sharing.blindness import Blindness
from weir.quotas.sharing.others import OthersCharge
from weir.quotas.sharing.own import OwnUsage
from weir.quotas.sharing.report import limiter_number
from weir.quotas.sharing.shared import LOOK_MS, SharedLimiters
from weir.quotas.table.entities import Tags
from weir.quotas.table.options import Options, Pacing, Scope

NODE = 1
LIMIT = 1000
PRODUCE = QuotaKey.PRODUCER_BYTE_RATE


def table(
    names: Iterable[str], scope: Scope = Scope.BROKER, limit: float = LIMIT, pacing: Pacing = Pacing.KAFKA
) -> QuotaTable:
    entities = [Entity(topic=name) for name in names]
    return QuotaTable(
        {(entity, PRODUCE): limit for entity in entities},
        options={(entity, PRODUCE): Options(scope=scope, pacing=pacing) for entity in entities},
    )


class Weir:
    """The limiters of one Weir, or with `collects` False those of one of its workers."""

    def __init__(self, in_force: QuotaTable, *, collects: bool = True) -> None:
        self.registry = QuotaRegistry(in_force)
        self.charged = None if collects else ChargeReader(self.registry)
        self.rates = self.registry.of(NODE)._topics.produce
        self.own = OwnUsage("w", 1)
        self.blindness = Blindness(0)
        self.blindness.heard(2, 0)
        self.limiters = SharedLimiters(self.own if collects else None, self.blindness, 11_000)
        self.look(0)

    def look(self, now_ms: int) -> None:
        for name, quotas, window_s in self.registry.shared():
            self.limiters.join(name, quotas, window_s)
        self.limiters.look(now_ms)
        for _charge in () if self.charged is None else self.charged.look(now_ms):
            pass  # a worker tells its supervisor

    def hear(self, topic: str, units: float, now_ms: int, kind: str = "topic produce") -> None:
        name = (NODE if kind == "topic produce" else None, kind, False)
        number = limiter_number(name, Tags("", "", topic=topic))
        self.limiters.absorb({number: [OthersCharge(now_ms, units, 1)]}, now_ms)

    def budget(self, topic: str) -> Budget:
        found = self.rates._enforced[topic.encode()]
        assert isinstance(found, Budget)
        return found


@pytest.mark.parametrize(
    ("scope", "kind"), [(Scope.BROKER, "topic produce"), (Scope.CLUSTER, "cluster topic produce")]
)
def test_usage_that_another_weir_reports_throttles_producers_of_the_topic(scope: Scope, kind: str) -> None:
    weir = Weir(table(["orders"], scope))
    weir.look(LOOK_MS)
    weir.hear("orders", 10_000, LOOK_MS, kind)
    assert weir.rates.charge({b"orders": 1000}, LOOK_MS) == 1000  # 11,000 at 1000 per s, less the window


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("former", [[], ["first"]])
def test_usage_of_a_topic_that_has_no_rate_yet_waits_for_its_entry(former: list[str], collects: bool) -> None:
    weir = Weir(table(former), collects=collects)
    for now_ms in range(0, 400, LOOK_MS):  # the rounds that follow a join find everything
        weir.look(now_ms)
    weir.hear("orders", 10_000, 400)
    weir.registry.use(table([*former, "orders"]))
    weir.look(400)
    weir.look(400 + LOOK_MS)
    assert weir.budget("orders").rate(400 + LOOK_MS) == pytest.approx(10_000 / 10.02)


def test_usage_is_reported_after_the_pacing_of_a_topic_has_changed() -> None:
    weir = Weir(table(["orders"]))
    weir.look(LOOK_MS)
    weir.registry.use(table(["orders"], pacing=Pacing.SMOOTH))
    weir.rates.charge({b"orders": 700}, 5000)
    weir.look(5000)
    assert weir.own.units == 700


def test_a_topic_gets_a_part_of_its_limit_while_no_report_gets_through() -> None:
    weir = Weir(table(["orders"]))
    assert weir.budget("orders").limit == LIMIT
    for now_ms in range(0, 3200, LOOK_MS):
        weir.look(now_ms)
    assert weir.budget("orders").limit == LIMIT / 2
    weir.registry.use(table(["orders", "others"], limit=4 * LIMIT))
    assert [weir.budget(name).limit for name in ("orders", "others")] == [2 * LIMIT] * 2
    weir.blindness.heard(2, 3200)
    for now_ms in range(3200, 3600, LOOK_MS):
        weir.look(now_ms)
    assert [weir.budget(name).limit for name in ("orders", "others")] == [4 * LIMIT] * 2


def test_a_rate_that_was_removed_and_is_back_takes_what_others_have_used_meanwhile() -> None:
    weir = Weir(table(["orders"]))
    weir.look(LOOK_MS)
    weir.registry.use(table([]))
    weir.hear("orders", 10_000, 2 * LOOK_MS)
    weir.registry.use(table(["orders"]))
    weir.look(3 * LOOK_MS)
    assert weir.budget("orders").rate(3 * LOOK_MS) == pytest.approx(10_000 / 10.02)
