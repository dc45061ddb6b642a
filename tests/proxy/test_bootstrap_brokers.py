"""The broker of a bootstrap connection, when workers serve the brokers: without sockets, in Trio's time."""

from __future__ import annotations

from typing import cast

import pytest
import trio
import trio.testing

from weir.proxy.addresses import Address
from weir.proxy.close_reasons import CloseReason
from weir.proxy.server.establish import Connector
from weir.proxy.server.refusals import RefusalError
from weir.proxy.server.target import BOOTSTRAP, Target
from weir.proxy.workers.bootstrap import FAILED_S, VALID_S, BootstrapBrokers

pytestmark = [pytest.mark.trio]


class Brokers:
    """Brokers by node id, and the attempts to reach them."""

    def __init__(self, *node_ids: int) -> None:
        self.node_ids = node_ids
        self.down: set[int] = set()
        """Known to be down."""
        self.away: set[int] = set()
        """Cannot be reached."""
        self.without_worker: set[int] = set()
        self.tried: list[int] = []
        self.silent_s = 0.0
        self.chosen = BootstrapBrokers(
            cast("Connector", self),
            lambda node_id: node_id not in self.down,
            lambda node_id: node_id not in self.without_worker,
        )

    def addresses(self, _target: Target) -> list[tuple[Address, Target]]:
        known = [(Address("kafka", node_id), Target(node_id)) for node_id in self.node_ids]
        return [*known, (Address("other", 1), BOOTSTRAP)]

    async def reach(self, addresses: list[tuple[Address, Target]]) -> Target:
        await trio.sleep(self.silent_s)
        for _address, target in addresses:
            assert target.node_id is not None
            self.tried.append(target.node_id)
            if target.node_id not in self.away:
                return target
        raise RefusalError(CloseReason.BROKER_UNREACHABLE, "all are away")


async def test_a_broker_that_is_up_and_has_a_worker_is_tried_first() -> None:
    brokers = Brokers(0, 1, 2)
    brokers.down, brokers.without_worker = {0}, {1}
    assert await brokers.chosen.node_id() == 2
    assert brokers.tried == [2]


async def test_a_broker_that_counts_as_down_is_tried_at_last() -> None:
    brokers = Brokers(0, 1)
    brokers.down, brokers.away = {0}, {1}
    assert await brokers.chosen.node_id() == 0


async def test_no_known_broker_leaves_the_choice_to_the_worker() -> None:
    assert await Brokers().chosen.node_id() is None


async def test_one_attempt_serves_all_clients_of_a_second(autojump_clock: trio.testing.MockClock) -> None:
    brokers = Brokers(0, 1)
    brokers.silent_s = 3.0
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(brokers.chosen.node_id)
    assert trio.current_time() == pytest.approx(brokers.silent_s, abs=0.01)
    assert brokers.tried == [0]
    autojump_clock.jump(VALID_S)
    await brokers.chosen.node_id()
    assert brokers.tried == [0, 0]


async def test_a_broker_that_has_gone_down_since_is_not_chosen() -> None:
    brokers = Brokers(0, 1)
    assert await brokers.chosen.node_id() == 0
    brokers.down = {0}
    assert await brokers.chosen.node_id() == 1


async def test_clients_that_waited_together_are_refused_together(
    autojump_clock: trio.testing.MockClock,
) -> None:
    brokers = Brokers(0)
    brokers.away, brokers.silent_s = {0}, 3.0
    refused: list[str] = []

    async def ask() -> None:
        with pytest.raises(RefusalError) as error:
            await brokers.chosen.node_id()
        refused.append(error.value.reason)

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(ask)
    assert refused == [CloseReason.BROKER_UNREACHABLE] * 100
    assert brokers.tried == [0]
    brokers.away = set()
    autojump_clock.jump(FAILED_S)
    assert await brokers.chosen.node_id() == 0
