"""What clients have used survives a restart, with its age."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path

import msgspec
import pytest
import trio

from tests.proxy.state_files import keep_once
from weir.proxy.control.quota_registry import QuotaRegistry, is_shareable
from weir.proxy.control.state_directory import StateDirectory
from weir.proxy.control.used_units_file import SavedUnits, UsedUnitsFile
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable, parse
from weir.quotas.handover import STEP

TABLE = QuotaTable({(Entity(client_id=DEFAULT), QuotaKey.PRODUCER_BYTE_RATE): 1000})
WINDOW_MS = 11_000
"""Length (ms) of the 11 samples of the default."""
NOW_S = 1_763_775_570.0


def file_of(path: Path, registry: QuotaRegistry, now_ms: int, wall_s: float = NOW_S) -> UsedUnitsFile:
    return UsedUnitsFile(StateDirectory(path), registry, lambda: now_ms, lambda: wall_s)


async def turns_beside(work: Awaitable[None]) -> int:
    """Await `work`; return the number of turns that another task has had meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await work
        nursery.cancel_scope.cancel()
    return turns


def registry_with(units: int, now_ms: int) -> QuotaRegistry:
    registry = QuotaRegistry(TABLE)
    registry.of(1).ledger("", "app", now_ms).charge_produce(units, now_ms)
    return registry


@pytest.mark.trio
async def test_a_process_that_reads_the_file_throttles_as_the_former_one_would(tmp_path: Path) -> None:
    old = registry_with(9000, 5000)
    await keep_once(tmp_path, file_of(tmp_path, old, 5000))
    new = QuotaRegistry(TABLE)
    await file_of(tmp_path, new, 70_000, NOW_S + 2).restore()
    expected = old.of(1).ledger("", "app", 7000).charge_produce(3000, 7000)
    assert expected > 0
    assert new.of(1).ledger("", "app", 70_000).charge_produce(3000, 70_000) == expected


@pytest.mark.trio
async def test_other_tasks_run_while_the_usage_of_many_limiters_is_restored(tmp_path: Path) -> None:
    new = QuotaRegistry(TABLE)
    await keep_once(tmp_path, file_of(tmp_path, registry_of_many(10 * STEP), 0))
    turns = await turns_beside(file_of(tmp_path, new, 0).restore())
    assert len(new.of(1).produce) == 10 * STEP
    assert turns >= 5


@pytest.mark.trio
async def test_usage_of_quotas_that_weirs_share_is_not_read_before_their_broker_is_known(
    tmp_path: Path,
) -> None:
    """The topic has it too: a process that reads both would charge it twice."""
    await keep_once(tmp_path, file_of(tmp_path, registry_with(9000, 0), 0))
    new = QuotaRegistry(TABLE)
    await file_of(tmp_path, new, 0).restore(is_shareable)
    assert new.of(1).ledger("", "app", 0).charge_produce(3000, 0) == 0


@pytest.mark.trio
@pytest.mark.parametrize("passed_s", [11, 3600, -5])
async def test_a_file_that_is_too_old_or_from_the_future_charges_nothing(
    tmp_path: Path, passed_s: float
) -> None:
    await keep_once(tmp_path, file_of(tmp_path, registry_with(9000, 0), 0))
    assert file_of(tmp_path, QuotaRegistry(TABLE), 0, NOW_S + passed_s).read() == []


@pytest.mark.trio
async def test_a_throttle_that_outlasts_its_charges_is_kept_for_a_window(tmp_path: Path) -> None:
    registry = registry_with(50_000, 0)
    (budget,) = registry.of(1).produce
    assert budget.throttled_until_ms == 40_000
    for now_ms, until_ms in ((15_000, 26_000), (17_000, 26_000)):
        assert not any(used.charges for used in registry.used(now_ms) if used)
        await keep_once(tmp_path, file_of(tmp_path, registry, now_ms))
        registry = QuotaRegistry(TABLE)
        await file_of(tmp_path, registry, now_ms).restore()
        (budget,) = registry.of(1).produce
        assert budget.throttled_until_ms == until_ms


HUGE = (1e308, 2**63 - 1, -1e308)
QUOTAS = parse("""
[[quota]]
client_id = "app"
producer_byte_rate = 1000
request_percentage = 20
controller_mutation_rate = 5

[[quota]]
client_id = "even"
producer_byte_rate = 1000
pacing = "smooth"
""")


def waits(registry: QuotaRegistry) -> dict[str, int]:
    """The throttle time (ms) of the next small charge of each kind of limiter."""
    quotas = registry.of(1)
    app, even = quotas.ledger("", "app", 0), quotas.ledger("", "even", 0)
    mutations = registry.mutations.budget("", "app", 0)
    assert mutations is not None
    return {
        "bytes": app.charge_produce(1, 0),
        "request time": app.charge_request(3, 1, 0),
        "smooth": even.charge_produce(1, 0),
        "mutations": mutations.charge(1, 0),
    }


@pytest.mark.trio
@pytest.mark.parametrize("units", HUGE)
@pytest.mark.parametrize("throttle_ms", [0, 2**63 - 1, -(2**63)])
async def test_numbers_beyond_meaning_block_no_client_for_longer_than_a_window(
    tmp_path: Path, units: float, throttle_ms: int
) -> None:
    """Of each limiter twice, as no Weir writes them. Negative units are no credit."""
    old, new = QuotaRegistry(QUOTAS), QuotaRegistry(QUOTAS)
    assert set(waits(old).values()) == {0}
    used = [used for used in old.used(0) if used]
    assert len(used) == 4
    forged = [one._replace(charges=[(0, units)] * 3, throttle_ms=throttle_ms) for one in used * 2]
    (tmp_path / UsedUnitsFile.name).write_bytes(msgspec.json.encode(SavedUnits(NOW_S, forged)))
    await file_of(tmp_path, new, 0).restore()
    for quotas in (new.of(1).produce, new.of(1).request):
        assert all(budget.throttled_until_ms <= WINDOW_MS for budget in quotas)
    found = waits(new)
    if units < 0:
        ledger = new.of(1).ledger("", "app", 0)
        assert (found, ledger.charge_produce(12_000, 0) > 0) == (waits(old), True)
    else:
        own_ms = 200  # of the one partition
        assert all(0 < wait_ms <= WINDOW_MS + own_ms for wait_ms in found.values()), found


@pytest.mark.trio
async def test_a_name_that_utf_8_cannot_encode_keeps_no_other_client_from_the_file(tmp_path: Path) -> None:
    registry = registry_with(9000, 0)
    registry.of(1).ledger("", "half \ud800", 0).charge_produce(9000, 0)
    await keep_once(tmp_path, file_of(tmp_path, registry, 0))
    assert [used.tags.client_id for used in file_of(tmp_path, registry, 0).read()] == ["app"]


@pytest.mark.trio
async def test_the_file_is_written_only_if_clients_have_used_something(tmp_path: Path) -> None:
    path, registry = tmp_path / UsedUnitsFile.name, registry_with(9000, 0)
    file = file_of(tmp_path, registry, 0)
    await keep_once(tmp_path, file)
    first = path.stat().st_ino, path.stat().st_mtime_ns
    await keep_once(tmp_path, file)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == first
    registry.of(1).ledger("", "app", 0).charge_produce(1, 0)
    await keep_once(tmp_path, file)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) != first
    (used,) = file.read()
    assert sum(units for _age_ms, units in used.charges) == 9001


async def written(_content: object) -> bool:
    return True


def registry_of_many(limiters: int) -> QuotaRegistry:
    registry = QuotaRegistry(TABLE)
    for number in range(limiters):
        registry.of(1).ledger("", f"c{number}", 0).charge_produce(1, 0)
    return registry


@pytest.mark.trio
async def test_many_limiters_are_written_in_steps_between_which_other_tasks_run(tmp_path: Path) -> None:
    file = file_of(tmp_path, registry_of_many(1000), 0)
    turns = await turns_beside(keep_once(tmp_path, file))
    assert turns >= 1000 / STEP
    assert len(file.read()) == 1000


@pytest.mark.trio
async def test_the_file_is_written_less_often_with_more_used_limiters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.proxy.control.used_units_file.LIMITERS_PER_S", 100)
    few, many = (file_of(tmp_path, registry_of_many(number), 0) for number in (100, 1000))
    await few.save(written)
    await many.save(written)
    assert (few.period_s, many.period_s) == (1, 10)
    await many.save(written)
    assert many.period_s == 1  # nothing was used, so nothing was written
