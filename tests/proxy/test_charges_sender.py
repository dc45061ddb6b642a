"""A worker tells what its clients have used: within 20 ms, and nothing if idle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.proxy.rigs import Clock
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.net.reactor import Reactor
from weir.proxy.workers import charges_sender
from weir.proxy.workers.charges import ALONE_MAX, ChargeReader, LimiterCharge
from weir.proxy.workers.charges_sender import ChargesSender
from weir.proxy.workers.messages import Charges
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable
from weir.quotas.registry import SLICE
from weir.quotas.sharing.shared import LOOK_MS
from weir.quotas.table.options import Options, Scope
from weir.quotas.used import LOOK_MAX

PRODUCE: Final = QuotaKey.PRODUCER_BYTE_RATE
EACH: Final = (Entity(client_id="each"), PRODUCE)
WHOLE: Final = (Entity(client_id="whole"), PRODUCE)
TABLE: Final = QuotaTable({EACH: 100.0, WHOLE: 100.0}, options={WHOLE: Options(scope=Scope.CLUSTER)})


class Stand:
    def __init__(self, table: QuotaTable = TABLE, look_max: int = LOOK_MAX) -> None:
        self.clock = Clock()
        self.reactor = Reactor(self.clock)
        self.registry = QuotaRegistry(table)
        self.posted: list[Charges] = []
        self.noted: list[LimiterCharge] = []
        charged = ChargeReader(self.registry, look_max)
        self.sender = ChargesSender(self.reactor, charged, self.posted.append, self.noted.extend)
        self.sender.start()

    def produce(self, client_id: str, units: int) -> None:
        now_ms = self.reactor.now_ms
        self.registry.of(1).ledger("", client_id, now_ms).charge_produce(units, now_ms)

    def until(self, now_ms: int) -> None:
        while self.clock.now_ms < now_ms:
            self.clock.now_ms += 1
            self.reactor.turn(0)

    def told(self) -> dict[str, float]:
        units: dict[str, float] = {}
        for message in self.posted:
            for charge in message.charges:
                client_id = charge.used.tags.client_id or ""
                units[client_id] = units.get(client_id, 0) + sum(n for _age, n in charge.used.charges)
        self.posted.clear()
        return units


@pytest.fixture
def stand() -> Iterator[Stand]:
    made = Stand()
    yield made
    made.reactor.close()


def test_charges_are_told_within_20_ms(stand: Stand) -> None:
    stand.produce("whole", 30)
    stand.produce("each", 50)
    stand.until(21)
    assert stand.told() == {"whole": 30, "each": 50}
    assert len(stand.noted) == 2


def test_a_worker_without_others_tells_a_part_of_many_charges_at_each_look() -> None:
    stand = Stand(QuotaTable({(Entity(client_id=DEFAULT), PRODUCE): 100.0}), look_max=ALONE_MAX)
    for number in range(3 * ALONE_MAX):
        stand.produce(str(number), 1)
    stand.until(21)
    assert len(stand.told()) == ALONE_MAX
    stand.until(61)
    assert len(stand.told()) == 2 * ALONE_MAX
    stand.reactor.close()


def test_the_rest_is_told_of_all_limiters_also_if_one_look_visits_only_some_of_them() -> None:
    one = (Entity(client_id=DEFAULT), PRODUCE)
    stand = Stand(QuotaTable({one: 100.0}, options={one: Options(scope=Scope.CLUSTER)}))
    for number in range(3 * LOOK_MAX):
        stand.produce(str(number), 1)
    for _step in stand.sender.send_rest():
        pass
    assert stand.told() == {str(number): 1 for number in range(3 * LOOK_MAX)}
    stand.reactor.close()


def test_an_idle_worker_posts_nothing(stand: Stand) -> None:
    stand.produce("whole", 30)
    stand.until(1000)
    stand.told()
    stand.until(3000)
    assert stand.posted == []
    stand.clock.now_ms += LOOK_MS
    stand.reactor.turn(0)
    assert stand.reactor.timeout_s() is None, "nothing wakes it"
    stand.produce("whole", 30)
    stand.until(3050)
    assert stand.told() == {"whole": 30}


def test_a_worker_tells_charges_after_another_one_of_its_process_has_ended(stand: Stand) -> None:
    ended = ChargesSender(stand.reactor, ChargeReader(QuotaRegistry(TABLE)), stand.posted.append, print)
    ended.start()
    stand.until(100)
    ended.stop()
    stand.produce("whole", 30)
    stand.until(150)
    assert stand.told() == {"whole": 30}


def test_many_limiters_are_told_in_steps_between_which_sockets_have_their_turn() -> None:
    entities = [Entity(client_id=f"c{number}") for number in range(3 * SLICE)]
    whole = Options(scope=Scope.CLUSTER)
    stand = Stand(
        QuotaTable({(e, PRODUCE): 100.0 for e in entities}, options={(e, PRODUCE): whole for e in entities})
    )
    for number in range(3 * SLICE):
        stand.produce(f"c{number}", 7)
    stand.until(20)
    first = len(stand.told())
    assert 0 < first < 3 * SLICE
    stand.until(24)
    assert first + len(stand.told()) == 3 * SLICE
    stand.reactor.close()


def test_a_look_that_fails_is_followed_by_another(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Exception] = []
    stand.reactor.on_error = errors.append
    stand.produce("whole", 30)
    with monkeypatch.context() as patched:
        patched.setattr(stand.sender, "_post", None)
        stand.until(21)
    assert [type(error) for error in errors] == [TypeError]
    stand.produce("whole", 4)
    stand.until(20 + charges_sender.FAILED_MS)
    assert stand.told() == {"whole": 4}
