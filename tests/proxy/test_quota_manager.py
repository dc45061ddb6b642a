"""The quota manager: alterations one after another, in force before the answer, told in the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs
from trio.abc import Clock

from tests.proxy.supervised import supervisor
from tests.proxy.throttles import ALL_BROKERS, BROKER_1, ORDERS, THROTTLES
from tests.scripted import scripted
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.stores.alterations import QuotaAlteration
from weir.proxy.control.stores.quota_manager import WAITING_MAX, QuotaManager
from weir.proxy.control.stores.store import Changed, StoreError, StoreHealth
from weir.proxy.control.stores.table_in_force import CLOCK_S
from weir.proxy.control.supervisor import WAIT_S_MIN, Task
from weir.proxy.counters import Counters
from weir.proxy.handlers.quota_api.quota_admin import Changes, ReplicationChanges
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable
from weir.quotas.replication.throttles import ReplicationThrottles
from weir.quotas.table.options import Options, Pacing

PRODUCE: Final = QuotaKey.PRODUCER_BYTE_RATE
FETCH: Final = QuotaKey.CONSUMER_BYTE_RATE
ALICE: Final = Entity(user="alice")
FIRST: Final = QuotaTable({(ALICE, PRODUCE): 1000.0})
END: Final = datetime(2026, 12, 1, 6, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
ANYBODY: Final = Entity(user=DEFAULT)
ENDS: Final = QuotaTable(
    {(ALICE, PRODUCE): 10.0, (ANYBODY, PRODUCE): 5.0}, options={(ALICE, PRODUCE): Options(until=END)}
)
Step: TypeAlias = Callable[[float, timedelta], Awaitable[float | None]]
PEER: Final = "10.0.0.7:4711"


class Store:
    """A store in memory; the test lets each alteration go on, or fail."""

    name = "memory"

    def __init__(self) -> None:
        self.table = FIRST
        self.may_go = trio.Semaphore(0)
        self.failure: Exception | None = None
        self.changed: Changed | None = None
        self.failed: Callable[[StoreError], None] | None = None
        self.loads = 0
        self.follow_failure: Exception | None = None

    async def load(self) -> QuotaTable:
        self.loads += 1
        if self.failure is not None:
            raise self.failure
        return self.table

    async def alter(self, changes: Changes, **_entry: object) -> QuotaTable:
        await self.may_go.acquire()
        if self.failure is not None:
            raise self.failure
        self.table = self.table.altered(changes)
        return self.table

    async def alter_replication(self, changes: ReplicationChanges) -> QuotaTable:
        await self.may_go.acquire()
        if self.failure is not None:
            raise self.failure
        self.table = self.table.replication_altered(changes)
        return self.table

    async def follow(self, changed: Changed, failed: Callable[[StoreError], None]) -> None:
        if self.follow_failure is not None:
            raise self.follow_failure
        self.changed, self.failed = changed, failed


class Scene:
    def __init__(self, admins: frozenset[str] = frozenset({"admin"})) -> None:
        self.store = Store()
        self.registry = QuotaRegistry(FIRST)
        self.now_s = 100.0
        self.now = END - 5 * SECOND
        self.state = StoreHealth(lambda: self.now_s, "memory")
        self.counters = Counters()
        self.quota_manager = QuotaManager(
            self.store, self.registry, FIRST, admins, self.state, supervisor(self.counters), lambda: self.now
        )
        self.answers: list[str | None] = []

    def alter(self, changes: Changes, who: str = "admin") -> None:
        self.quota_manager.alter(changes, who, PEER, self.answers.append)

    async def settle(self) -> None:
        threads = trio.to_thread.current_default_thread_limiter()
        await trio.testing.wait_all_tasks_blocked()
        while threads.borrowed_tokens:
            await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()


def play(script: Callable[[Scene], Awaitable[None]], clock: Clock | None = None) -> None:
    async def main() -> None:
        scene = Scene()
        async with trio.open_nursery() as nursery:
            await nursery.start(scene.quota_manager.run)
            await scene.settle()
            await script(scene)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)


def play_in_steps(script: Callable[[Scene, Step], Awaitable[None]]) -> None:
    """The script's function waits, and moves the wall clock by another time."""
    clock = trio.testing.MockClock()

    async def main(scene: Scene) -> None:
        async def step(waited_s: float, passed: timedelta) -> float | None:
            scene.now += passed
            clock.jump(waited_s)
            await scene.settle()
            limit = scene.registry.in_force.limits(PRODUCE).resolve("alice", "")
            return limit and limit.value

        await script(scene, step)

    play(main, clock)


def seen(scene: Scene) -> tuple[bool, QuotaTable]:
    return scene.state.last_was_good, scene.registry.table


def audited(logged: list[dict[str, object]]) -> list[tuple[object, ...]]:
    """Who, where, whom, what, before and after, of each line of the audit log."""
    keys = ("principal", "client", "entity", "quota", "before", "after")
    return [tuple(line[key] for key in keys) for line in logged if line["event"] == "quota altered"]


@scripted(play)
async def test_a_quota_alteration_is_in_force_before_its_response(scene: Scene) -> None:
    budget = scene.registry.of(0).produce
    generation = scene.registry.of(0).generation
    changes = {(ALICE, PRODUCE): 10.0}
    seen: list[QuotaTable] = []
    scene.quota_manager.alter(changes, "admin", PEER, lambda _reason: seen.append(scene.registry.table))
    await scene.settle()
    assert seen == []
    scene.store.may_go.release()
    await scene.settle()
    assert seen == [QuotaTable(changes)] == [scene.quota_manager.table]
    assert scene.registry.of(0).produce is budget
    assert scene.registry.of(0).generation != generation


def test_an_entry_ends_by_the_wall_clock_and_no_clock_revives_it() -> None:
    async def script(scene: Scene, step: Step) -> None:
        put = scene.store.changed
        assert put is not None
        await put(ENDS)
        assert await step(4, 4 * SECOND) == 10
        with capture_logs() as lines:
            assert await step(1, SECOND) == 5
            assert await step(CLOCK_S, -timedelta(days=1)) == 5
            await put(ENDS.altered({(ALICE, PRODUCE): 20.0}))
            assert await step(CLOCK_S, SECOND) == 5
        told = [(line["entity"], line[PRODUCE.value]) for line in lines if line["event"] == "quota ended"]
        assert told == [("user alice", 10)]
        later = Options(until=END + SECOND)
        await put(ENDS.altered({(ALICE, PRODUCE): 20.0}, options=later))
        assert await step(0, SECOND) == 20
        assert await step(CLOCK_S, timedelta(days=1)) == 5  # the clock was set forwards

    play_in_steps(script)


def test_a_change_of_an_entry_keeps_its_end_and_of_one_that_has_ended_makes_a_new_one() -> None:
    async def script(scene: Scene, step: Step) -> None:
        for _alteration in range(3):
            scene.store.may_go.release()
        scene.store.table = ENDS
        assert scene.store.changed is not None
        await scene.store.changed(ENDS)
        scene.alter({(ALICE, PRODUCE): 20.0})
        assert await step(0, SECOND) == 20
        assert scene.store.table.options_of(ALICE).until == END
        assert await step(CLOCK_S, 4 * SECOND) == 5
        scene.alter({(ALICE, FETCH): 30.0})
        assert await step(CLOCK_S, SECOND) == 5
        assert scene.store.table == QuotaTable({(ANYBODY, PRODUCE): 5.0, (ALICE, FETCH): 30.0})
        assert scene.quota_manager.table == scene.store.table

    play_in_steps(script)


@scripted(play)
async def test_the_audit_log_has_a_line_for_each_changed_value(scene: Scene) -> None:
    scene.store.may_go.release()
    entity = Entity(user=DEFAULT, client_id="app")
    changes = {
        (ALICE, PRODUCE): None,
        (ALICE, FETCH): None,
        (entity, PRODUCE): 5.0,
        (entity, QuotaKey.CONTROLLER_MUTATION_RATE): 0.5,
        (entity, QuotaKey.REQUEST_PERCENTAGE): 200.0,
    }
    with capture_logs() as logged:
        scene.alter(changes)
        await scene.settle()
    said = ("User:admin", PEER)
    assert audited([dict(line) for line in logged]) == [
        (*said, "user alice", "producer_byte_rate", 1000, None),
        (*said, "user <default>, client-id app", "producer_byte_rate", None, 5),
        (*said, "user <default>, client-id app", "controller_mutation_rate", None, 0.5),
        (*said, "user <default>, client-id app", "request_percentage", None, 200),
    ]
    assert scene.state.alterations == {"stored": 1}
    assert scene.state.last_change_s == 100
    shadow = QuotaAlteration({(ALICE, PRODUCE): None}, shadow=True, options=Options(Pacing.SMOOTH))
    (line,) = shadow.changed(QuotaTable(shadow={(ALICE, PRODUCE): 7.0}))
    assert (line["before"], line["mode"], line["options"]) == (7, "shadow", "smooth")


@scripted(play)
async def test_altered_throttles_are_in_force_and_audited_before_the_response(scene: Scene) -> None:
    expected = FIRST.replication_altered(dict(THROTTLES.values))
    seen: list[QuotaTable] = []
    with capture_logs() as logged:
        for changes in (dict(THROTTLES.values), {BROKER_1: "5", ORDERS: None, ALL_BROKERS: "0"}):
            scene.store.may_go.release()
            scene.quota_manager.alter_replication(
                changes, "admin", PEER, lambda _reason: seen.append(scene.registry.in_force)
            )
            await scene.settle()
    assert seen == [expected, expected.replication_altered({BROKER_1: "5", ORDERS: None})]
    assert seen[-1] == scene.quota_manager.table
    keys = ("principal", "client", "resource", "config", "before", "after")
    said = [
        tuple(line[key] for key in keys) for line in logged if line["event"] == "replication throttle altered"
    ]
    admin = ("User:admin", PEER)
    assert said == [
        (*admin, "broker 1", "leader.replication.throttled.rate", None, "10000000"),
        (*admin, "broker <default>", "follower.replication.throttled.rate", None, "0"),
        (*admin, "topic orders", "leader.replication.throttled.replicas", None, "0:1,1:2"),
        (*admin, "topic orders", "follower.replication.throttled.replicas", None, "*"),
        (*admin, "broker 1", "leader.replication.throttled.rate", "10000000", "5"),
        (*admin, "topic orders", "leader.replication.throttled.replicas", "0:1,1:2", None),
    ]
    assert scene.state.alterations == {"stored": 2}


@scripted(play)
async def test_alterations_of_quotas_and_throttles_run_in_the_order_of_requests(scene: Scene) -> None:
    answers: list[tuple[str, str | None]] = []
    scene.quota_manager.alter_replication({BROKER_1: "5"}, "a", PEER, lambda why: answers.append(("a", why)))
    scene.quota_manager.alter({(ALICE, PRODUCE): 7.0}, "b", PEER, lambda why: answers.append(("b", why)))
    scene.quota_manager.alter_replication({BROKER_1: "6"}, "c", PEER, lambda why: answers.append(("c", why)))
    await scene.settle()
    assert answers == []
    scene.store.failure = StoreError("disk full")
    scene.store.may_go.release()
    await scene.settle()
    assert answers == [("a", "disk full")]
    scene.store.failure = None
    for _ in range(2):
        scene.store.may_go.release()
    await scene.settle()
    assert answers[1:] == [("b", None), ("c", None)]
    assert scene.store.table == QuotaTable(
        {(ALICE, PRODUCE): 7.0}, replication=ReplicationThrottles({BROKER_1: "6"})
    )


@pytest.mark.parametrize(
    ("failure", "reason"),
    [(StoreError("the disk is full"), "the disk is full"), (RuntimeError("a bug"), "internal error")],
)
@scripted(play)
async def test_after_a_store_failure_the_next_alteration_is_tried(
    scene: Scene, failure: Exception, reason: str
) -> None:
    scene.store.failure = failure
    scene.store.may_go.release()
    with capture_logs() as logged:
        scene.alter({(ALICE, PRODUCE): 10.0})
        await scene.settle()
    (answer,) = scene.answers
    assert answer is not None
    assert reason in answer
    assert "\n" not in answer
    assert "quotas not altered" in [line["event"] for line in logged]
    assert (scene.registry.table, scene.quota_manager.table) == (FIRST, FIRST)
    scene.store.failure = None
    scene.store.may_go.release()
    scene.alter({(ALICE, PRODUCE): 20.0})
    await scene.settle()
    assert scene.answers[1:] == [None]
    assert scene.state.alterations == {"failed": 1, "stored": 1}
    assert scene.state.last_was_good


@scripted(play)
async def test_alterations_above_the_waiting_limit_are_refused(scene: Scene) -> None:
    for _ in range(WAITING_MAX + 1):  # one is with the store
        scene.alter({(ALICE, PRODUCE): 10.0})
        await scene.settle()
    assert scene.answers == []
    scene.alter({(ALICE, PRODUCE): 10.0})
    await scene.settle()
    (answer,) = scene.answers
    assert answer is not None
    assert "waiting already" in answer


@scripted(play)
async def test_tables_and_failures_from_the_store_are_applied_and_logged(scene: Scene) -> None:
    assert scene.store.changed is not None
    assert scene.store.failed is not None
    table = QuotaTable({(ALICE, FETCH): 3.0})
    with capture_logs() as logged:
        await scene.store.changed(table)
        await scene.store.changed(table)
    assert [line["event"] for line in logged] == ["quotas loaded"]
    assert (scene.registry.table, scene.quota_manager.table, scene.registry.changes) == (table, table, 1)
    scene.now_s = 200.0
    with capture_logs() as logged:
        scene.store.failed(StoreError("unreachable"))
    assert [(line["log_level"], line["reason"]) for line in logged] == [("error", "unreachable")]
    assert (scene.state.last_was_good, scene.state.last_good_s) == (False, 100)
    assert scene.registry.table == table
    await scene.store.changed(table)
    assert (scene.state.last_was_good, scene.state.last_good_s) == (True, 200)


@scripted(play)
async def test_many_alterations_at_the_broker_trigger_at_most_two_reads(scene: Scene) -> None:
    """Whoever may not alter there causes it as well."""
    for _ in range(1000):
        scene.quota_manager.altered_at_broker()
    await scene.settle()
    assert scene.store.loads == 1
    scene.quota_manager.altered_at_broker()
    await scene.settle()
    assert scene.store.loads == 2


def test_following_the_quota_store_is_retried() -> None:
    async def main() -> None:
        scene = Scene()
        scene.store.follow_failure = OSError("no watches left")
        with capture_logs() as logged:
            async with trio.open_nursery() as nursery:
                await nursery.start(scene.quota_manager.run)
                await trio.sleep(WAIT_S_MIN / 2)
                assert seen(scene) == (False, FIRST)
                scene.store.follow_failure = None
                scene.store.table = QuotaTable({(ALICE, FETCH): 3.0})
                await trio.sleep(WAIT_S_MIN)
                await scene.settle()
                assert seen(scene) == (True, scene.store.table)
                assert scene.store.changed is not None
                nursery.cancel_scope.cancel()
        assert [line["event"].partition(",")[0] for line in logged] == [
            "task failed",
            "quotas loaded",
            "task works again",
        ]
        assert scene.counters.task_failures == {Task.QUOTA_STORE: 1}

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@scripted(play)
async def test_a_bug_in_reading_the_store_does_not_stop_traffic(scene: Scene) -> None:
    scene.store.failure = RuntimeError("a bug")
    with capture_logs() as logged:
        scene.quota_manager.altered_at_broker()
        await scene.settle()
        await scene.quota_manager.reload()
    assert seen(scene) == (False, FIRST)
    assert [line["log_level"] for line in logged] == ["error", "error"]
    scene.store.failure = None
    await scene.quota_manager.reload()
    assert seen(scene) == (True, FIRST)


@scripted(play)
async def test_a_failing_alteration_callback_affects_only_its_connection(scene: Scene) -> None:
    scene.store.may_go.release()
    scene.store.may_go.release()
    with capture_logs() as logged:
        scene.quota_manager.alter({(ALICE, PRODUCE): 5.0}, "admin", PEER, lambda _reason: [].pop())
        scene.alter({(ALICE, PRODUCE): 6.0})
        await scene.settle()
    assert scene.answers == [None]
    assert [line["event"] for line in logged if line["log_level"] == "error"] == [
        "internal error while a quota request was answered"
    ]


@scripted(play)
async def test_a_bug_in_threaded_quota_work_does_not_end_the_manager(scene: Scene) -> None:
    done: list[object] = []
    answered = trio.Event()

    def note(result: object) -> None:
        done.append(result)
        if len(done) == 2:
            answered.set()

    scene.quota_manager.compute(lambda: trio.lowlevel.in_trio_run(), note)
    await trio.testing.wait_all_tasks_blocked()
    with capture_logs() as logged:
        scene.quota_manager.compute(lambda: 1 // 0, note)
        with trio.fail_after(5):
            await answered.wait()
    assert sorted(map(str, done)) == ["False", "None"]
    assert [line["log_level"] for line in logged] == ["error"]


def test_users_who_are_no_admins_are_denied_with_a_reason() -> None:
    scene = Scene()
    with capture_logs() as logged:
        assert scene.quota_manager.rejection("admin", PEER) is None
        assert scene.quota_manager.rejection("Admin", PEER) == "User:Admin is none of Weir's admins."
        assert scene.quota_manager.rejection("ANONYMOUS", PEER) == "User:ANONYMOUS is none of Weir's admins."
    assert [(line["event"], line["principal"], line["client"]) for line in logged] == [
        ("client quotas denied", "User:Admin", PEER)
    ]
    scene.now_s += 1
    with capture_logs() as logged:
        scene.quota_manager.rejection("mallory", PEER)
    assert [line["denied"] for line in logged] == [3]


@scripted(play)
async def test_quotas_that_can_be_read_again_are_logged_once_after_an_outage(scene: Scene) -> None:
    scene.store.failure = StoreError("the disk is gone")
    with capture_logs() as lines:
        for _ in range(2):
            assert not await scene.quota_manager.reload()
        scene.store.failure = None
        for _ in range(2):
            assert await scene.quota_manager.reload()
    assert [line["event"] for line in lines] == [
        "quotas not loaded, the last known stay in force",
        "quotas not loaded, the last known stay in force",
        "quotas loaded again",
    ]


@scripted(play)
async def test_the_mode_of_all_quotas_can_change_while_weir_runs(scene: Scene) -> None:
    def alices() -> tuple[bool, bool]:
        ledger = scene.registry.of(1).ledger("alice", "app", 0)
        shadow = ledger.shadow is not None and ledger.shadow.produce is not None
        return ledger.produce is not None, shadow

    assert alices() == (True, False)
    await scene.quota_manager.renew(True)
    assert alices() == (False, True)
    await scene.quota_manager.renew(False)
    assert alices() == (True, False)
