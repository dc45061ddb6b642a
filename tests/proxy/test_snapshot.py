"""The last known quotas: written when they change, read when the store is not to be had at start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from tests.fuzz.work import steps
from tests.interpreted import interpreted
from tests.proxy.following import Followed
from tests.proxy.state_files import keep_once, read_snapshot, snapshot_of
from tests.proxy.throttles import BROKER_1, ORDERS, THROTTLES
from weir.proxy.config.config import ConfigError, load
from weir.proxy.control.state_directory import StateDirectory
from weir.proxy.control.stores.snapshot import LastKnown, Snapshot
from weir.proxy.control.stores.store import Changed, StoreError, UnfitError
from weir.proxy.handlers.quota_api.quota_admin import Changes, ReplicationChanges
from weir.proxy.run import choose
from weir.quotas import DEFAULT, Entity, QuotaTable
from weir.quotas.replication.throttles import ReplicationThrottles
from weir.quotas.table.entities import Prefix
from weir.quotas.table.groups import Member, QuotaGroups
from weir.quotas.table.options import Options, Pacing
from weir.quotas.table.quota_delta import QuotaDelta, QuotaValue
from weir.quotas.table.quota_table import QuotaKey

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
NOWHERE = StateDirectory(None)
ALICE, BOB = Entity(user="alice"), Entity(user="bob")
ALICES = QuotaTable({(ALICE, PRODUCE): 1000.0})
BOBS = QuotaTable({(BOB, PRODUCE): 2000.0}, {(ALICE, PRODUCE): 5.0})
RICH = QuotaTable(
    {
        (ALICE, PRODUCE): 1000.0,
        (Entity(user=DEFAULT, client_id=DEFAULT), QuotaKey.CONTROLLER_MUTATION_RATE): 0.5,
        (Entity(client_id=Prefix("etl-")), PRODUCE): 1.0,
        (Entity(client_id=Prefix("etl-")), QuotaKey.REQUEST_PERCENTAGE): 12.5,
        (Entity(ip="::1"), QuotaKey.CONNECTION_CREATION_RATE): 2.0,
        (Entity(topic="orders"), PRODUCE): 3.0,
    },
    {(ALICE, PRODUCE): 5.0, (Entity(user="bob"), QuotaKey.REQUEST_PERCENTAGE): 5e-324},
)


CONTRADICTORY = QuotaTable(
    {
        (Entity(group="gone"), PRODUCE): 1000.0,
        (Entity(group="<all>"), PRODUCE): 1000.0,
        (ALICE, QuotaKey.PRODUCER_BYTE_FLOOR): 2000.0,
    },
    groups=QuotaGroups().updated({Member("user", "svc-", True): "pay"}, {"pay": "retail", "retail": ""}),
)
"""As several Weirs may write it into a topic at once: a file of an operator would be refused."""


@dataclass
class FakeStore:
    """Holds a table, or an error; tells its follower when a test says so."""

    table: QuotaTable = field(default_factory=QuotaTable)
    error: StoreError | None = None
    changed: Changed | None = None
    failed: Callable[[StoreError], None] | None = None
    name: str = "fake"

    async def load(self) -> QuotaTable:
        if self.error is not None:
            raise self.error
        return self.table

    async def alter(self, changes: Changes, **_entry: object) -> QuotaTable:
        self.table = self.table.altered(changes)
        return self.table

    async def alter_replication(self, changes: ReplicationChanges) -> QuotaTable:
        self.table = self.table.replication_altered(changes)
        return self.table

    async def follow(self, changed: Changed, failed: Callable[[StoreError], None]) -> None:
        self.changed, self.failed = changed, failed
        await trio.sleep_forever()


# The file


def test_a_quota_snapshot_is_a_quota_file_that_reads_back(tmp_path: Path) -> None:
    throttles = RICH.replication_altered(dict(THROTTLES.values))
    for table in (QuotaTable(), RICH, throttles, CONTRADICTORY, ALICES):
        snapshot_of(tmp_path, table)
        assert read_snapshot(tmp_path) == table
    (path,) = tmp_path.iterdir()
    assert path.read_text().startswith("# ")


@interpreted
def test_a_change_of_few_quotas_costs_a_snapshot_the_same_among_more(tmp_path: Path) -> None:
    costs, smooth = [], Options(Pacing.SMOOTH)
    for number in (400, 1600):
        before = QuotaTable({(Entity(f"user-{n:04}"), PRODUCE): 1000.0 for n in range(number)})
        snapshot = snapshot_of(tmp_path, before)
        for rate in (1.0, 2.0, 3.0):
            enforced = {(Entity("user-0007"), PRODUCE): QuotaValue(rate, smooth), (BOB, PRODUCE): None}
            after = before.applied(QuotaDelta(enforced, {(ALICE, PRODUCE): QuotaValue(rate)}))
            work = steps(partial(snapshot.rendered, after))
            snapshot.newest = before = after
            trio.run(keep_once, tmp_path, snapshot)
            assert read_snapshot(tmp_path) == after
        costs.append(work)
    assert costs[1] < 1.1 * costs[0]


def test_a_quota_snapshot_omits_quotas_that_a_file_cannot_hold(tmp_path: Path) -> None:
    table = QuotaTable(
        {
            (Entity(user="<default>"), PRODUCE): 1.0,
            (ALICE, PRODUCE): 1000.0,
            (ALICE, QuotaKey.CONSUMER_BYTE_RATE): 0.5,
            (ALICE, QuotaKey.REQUEST_PERCENTAGE): 1e300,
        },
        replication=ReplicationThrottles({BROKER_1: "5", ORDERS._replace(resource_name="<default>"): "*"}),
    )
    with capture_logs() as lines:
        snapshot_of(tmp_path, table)
    said = [(line["event"], line["count"]) for line in lines]
    assert said == [("quotas not supported by the snapshot", 4)]
    assert read_snapshot(tmp_path) == ALICES.replication_altered({BROKER_1: "5"})


def test_an_available_store_precedes_the_quota_snapshot(tmp_path: Path) -> None:
    snapshot_of(tmp_path, BOBS)
    assert trio.run(LastKnown(FakeStore(ALICES), StateDirectory(tmp_path)).start) == ALICES


# Starting


def test_weir_starts_from_the_quota_snapshot_without_its_store(tmp_path: Path) -> None:
    snapshot_of(tmp_path, BOBS)
    without = {"starting with the last known quotas": BOBS, "starting without quotas": QuotaTable()}
    for words, expected in without.items():
        with capture_logs() as logs:
            last_known = LastKnown(FakeStore(error=StoreError("gone")), StateDirectory(tmp_path))
            assert trio.run(last_known.start) == expected
        (line,) = logs
        assert line["log_level"] == "error"
        assert words in line["event"]
        (tmp_path / Snapshot.name).unlink(missing_ok=True)
        trio.run(keep_once, tmp_path, last_known.snapshot)
        assert not list(tmp_path.iterdir()), "quotas that no store has told are not written"


def test_an_unsuitable_quota_store_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="quotas = fake: too old"):
        trio.run(LastKnown(FakeStore(error=UnfitError("too old")), NOWHERE).start)


# Following


@pytest.mark.trio
async def test_changes_of_the_store_are_passed_on_and_written_to_the_snapshot(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    store, followed = FakeStore(ALICES), Followed()
    last_known = LastKnown(store, StateDirectory(tmp_path))
    await last_known.start()
    nursery.start_soon(last_known.follow, followed.changed, followed.failed)
    await keep_once(tmp_path, last_known.snapshot)
    assert read_snapshot(tmp_path) == ALICES, "what it started with, too"
    assert store.changed is not None
    for table in (BOBS, RICH, ALICES):
        await store.changed(table)
        await keep_once(tmp_path, last_known.snapshot)
        assert read_snapshot(tmp_path) == table
    assert followed.tables == [BOBS, RICH, ALICES]
    assert followed.failures == []


@pytest.mark.trio
async def test_a_start_without_the_store_is_reported_while_following(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    store, followed = FakeStore(error=StoreError("gone")), Followed()
    last_known = LastKnown(store, NOWHERE)
    await last_known.start()
    nursery.start_soon(last_known.follow, followed.changed, followed.failed)
    await trio.sleep(1)
    assert followed.failures == ["gone"]
    assert followed.tables == []


# Choosing


@pytest.mark.parametrize("kind", ["topic", "broker"])
def test_weir_starts_from_the_quota_snapshot_without_any_broker(tmp_path: Path, kind: str) -> None:
    snapshot_of(tmp_path, ALICES)
    config = load(None, {"upstream": "127.0.0.1:1", "quotas": kind})
    chosen = choose(config, StateDirectory(tmp_path))
    assert (chosen.store.name, chosen.table) == (kind, ALICES)
