"""Connection rates and counts (KIP-612): numbers from kafka-quotas.md 8.4 and by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quotas.calls import calls_made
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable, Tags
from weir.quotas.connections import ConnectionCounts, ConnectionQuotas
from weir.quotas.table.bounded_names import OVERFLOW

RATE = QuotaKey.CONNECTION_CREATION_RATE


def table(**rates: float) -> QuotaTable:
    """IP rates by address, underscores for dots; `default` for every other address."""
    named = {DEFAULT if name == "default" else name[1:].replace("_", "."): v for name, v in rates.items()}
    return QuotaTable({(Entity(ip=ip), RATE): value for ip, value in named.items()})


def admitted(quotas: ConnectionQuotas, ip: str, count: int, now_ms: int, listener: int | None = 1) -> int:
    return [quotas.admit(listener, ip, now_ms) for _ in range(count)].count(0)


def test_a_rate_of_five_connections_per_second_admits_fifty_and_delays_the_next_200_ms() -> None:
    quotas = ConnectionQuotas(table(_10_0_0_1=5))
    assert admitted(quotas, "10.0.0.1", 50, 0) == 50
    assert quotas.admit(1, "10.0.0.1", 0) == 200  # rate 5.1 over 10 s


def test_a_refused_connection_is_not_charged() -> None:
    quotas = ConnectionQuotas(table(default=5))
    assert admitted(quotas, "10.0.0.1", 1000, 0) == 50
    (budget,) = quotas.ips(1)
    assert budget.tags == Tags("", "", ip="10.0.0.1")
    assert budget.charged == 50


def test_connections_of_a_refused_address_are_not_charged_to_the_listener() -> None:
    quotas = ConnectionQuotas(table(default=1), listener_rate=100)
    for _ in range(1000):
        quotas.arrive(1, 0)
        quotas.admit(1, "10.0.0.1", 0)
    assert dict(quotas.listeners())[1].charged == 10


def test_a_connection_at_a_listener_above_its_rate_waits_for_at_most_one_window() -> None:
    quotas = ConnectionQuotas(listener_rate=5)
    assert [quotas.arrive(1, 0) for _ in range(51)][-1] == 200  # 51 / 5 - 10 s
    waits = [quotas.arrive(1, 0) for _ in range(1000)]
    assert waits[-1] == 1000
    assert quotas.arrive(2, 0) == 0


def test_changed_rates_of_listeners_count_former_connections() -> None:
    """As in Kafka (KIP-612), also where there was no rate before."""
    quotas = ConnectionQuotas()
    assert {quotas.arrive(1, 0) for _ in range(50)} == {0}
    assert list(quotas.listeners()) == []
    quotas.limit(5)
    assert (quotas.arrive(1, 0), quotas.arrive(2, 0)) == (200, 0)  # 51 / 5 - 10 s
    quotas.limit(100)
    assert quotas.arrive(1, 0) == 0


def test_a_changed_connection_rate_keeps_the_usage() -> None:
    quotas = ConnectionQuotas(table(default=5))
    assert admitted(quotas, "10.0.0.1", 40, 0) == 40
    quotas.update(table(default=2))
    assert quotas.admit(1, "10.0.0.1", 0) == 1000  # 41 / 2 - 10 s, but a window at most
    quotas.update(QuotaTable())
    assert admitted(quotas, "10.0.0.1", 1000, 0) == 1000


def test_changed_connection_rates_apply_to_each_of_many_addresses_at_its_next_connection() -> None:
    rates = QuotaTable(table(default=5).values, table(default=3).values)
    quotas = ConnectionQuotas(rates)
    addresses = [f"10.0.{number // 256}.{number % 256}" for number in range(300)]
    assert {admitted(quotas, ip, 10, 0) for ip in addresses} == {10}
    quotas.update(QuotaTable(table(default=2, _10_0_0_7=4).values, table(default=1).values))
    counts = {ip: admitted(quotas, ip, 100, 0) for ip in addresses}
    assert counts.pop("10.0.0.7") == 30  # 4 · 10 s, without the 10 from before
    assert set(counts.values()) == {10}
    ((_listener, shadow),) = quotas.of_addresses(shadow=True)
    still_shadowed = [budget for budget in shadow if budget.tags.ip != "10.0.0.7"]
    assert {(budget.limit, budget.charged) for budget in still_shadowed} == {(1, 10)}
    quotas.update(QuotaTable())
    assert {admitted(quotas, ip, 100, 0) for ip in addresses} == {100}


def test_changing_connection_rates_makes_as_many_calls_for_one_address_as_for_thousands() -> None:
    def calls(addresses: int) -> int:
        quotas = ConnectionQuotas(table(default=5))
        for number in range(addresses):
            quotas.admit(1, f"10.0.{number // 256}.{number % 256}", 0)
        changed = table(default=2)
        changed.prepared(QuotaTable())
        return calls_made(lambda: quotas.update(changed))

    assert calls(5000) == calls(1)


def test_shadow_connection_rates_refuse_nothing_and_count_would_be_refusals() -> None:
    rates = table(default=5)
    quotas = ConnectionQuotas(QuotaTable(None, rates.values))
    assert admitted(quotas, "10.0.0.1", 80, 0) == 80
    assert not list(quotas.ips(1))
    ((_listener, (budget,)),) = quotas.of_addresses(shadow=True)
    assert (budget.charged, budget.throttled) == (50, 30)


def test_a_shadow_connection_rate_does_not_loosen_the_enforced_one() -> None:
    enforced, shadow = table(default=5), table(_10_0_0_1=100)
    quotas = ConnectionQuotas(QuotaTable(enforced.values, shadow.values))
    assert admitted(quotas, "10.0.0.1", 80, 0) == 50
    assert admitted(quotas, "10.0.0.2", 80, 0) == 50
    ((_listener, (budget,)),) = quotas.of_addresses(shadow=True)
    assert budget.tags.ip == "10.0.0.1"
    assert budget.throttled == 0


def test_the_number_of_address_budgets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.quotas.registry.LIMITERS_MAX", 3)
    quotas = ConnectionQuotas(table(default=1))
    for number in range(100):
        quotas.admit(1, f"10.0.0.{number}", 0)
    assert quotas.addresses == 3
    assert [budget.tags.ip for budget in quotas.ips(1)][3:] == [OVERFLOW]
    assert quotas.admit(1, "10.9.9.9", 0) == 0, "others' addresses lock nobody out"


def test_a_named_address_has_its_own_budget_when_the_memory_for_budgets_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weir.quotas.registry.LIMITERS_MAX", 3)
    quotas = ConnectionQuotas(table(default=1, _10_0_0_9=5))
    for number in range(5):
        quotas.admit(1, f"10.9.9.{number}", 0)
    assert admitted(quotas, "10.9.9.9", 100, 0) == 100, "others' addresses must not lock newcomers out"
    assert admitted(quotas, "10.0.0.9", 100, 0) == 50
    assert {budget.tags.ip for budget in quotas.ips(1)} >= {"10.0.0.9", OVERFLOW}


@pytest.mark.parametrize(("now_ms", "freed"), [(11_899, False), (11_900, True)])
def test_an_address_is_forgotten_for_another_once_its_last_connection_no_longer_counts(
    now_ms: int, *, freed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's rate forgets a sample 11 windows after the last event in it (kafka-quotas.md, trace r07)."""
    monkeypatch.setattr("weir.quotas.registry.LIMITERS_MAX", 1)
    quotas = ConnectionQuotas(table(default=5))
    assert admitted(quotas, "10.0.0.1", 25, 0) == 25
    assert admitted(quotas, "10.0.0.1", 25, 900) == 25
    assert quotas.admit(1, "10.0.0.2", now_ms) == 0
    kept = ["10.0.0.2"] if freed else ["10.0.0.1", OVERFLOW]
    assert [budget.tags.ip for budget in quotas.ips(1)] == kept


@given(rate=st.integers(1, 50), gaps_ms=st.lists(st.integers(0, 3000), min_size=1, max_size=300))
def test_no_address_gets_more_than_its_rate_and_its_burst(rate: int, gaps_ms: list[int]) -> None:
    quotas = ConnectionQuotas(table(default=rate))
    now_ms, let_in = 0, []
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        if not quotas.admit(1, "10.0.0.1", now_ms):
            let_in.append(now_ms)
    for end_ms in let_in:
        within = sum(1 for at_ms in let_in if end_ms - 10_000 < at_ms <= end_ms)
        assert within <= rate * 11  # the window is 10 to 11 s long


def test_connection_counts_are_limited_per_address_with_overrides() -> None:
    counts = ConnectionCounts(2, {"::1": 1, "10.0.0.9": 0})
    assert [counts.open("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert [counts.open("::1") for _ in range(2)] == [True, False]
    assert not counts.open("10.0.0.9")
    counts.close("10.0.0.1")
    assert counts.of("10.0.0.1") == 1
    assert counts.open("10.0.0.1")
