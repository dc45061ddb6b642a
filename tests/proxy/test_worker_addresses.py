"""A worker tells the supervisor of brokers without a listener, less and less often."""

from __future__ import annotations

from itertools import pairwise

from weir.proxy.addresses import Address, PortRange
from weir.proxy.workers.addresses import FORGOTTEN_MS, TOLD_AGAIN_MS, TOLD_AGAIN_MS_MAX, ToldAddresses
from weir.proxy.workers.messages import BrokerFound

BROKER = Address("kafka", 9092)
MOVED = Address("kafka", 9093)
MINUTE_MS = 60_000


class Clients:
    """Clients that ask for the brokers every second; their answers are cached until the version changes."""

    def __init__(self) -> None:
        self.told: list[tuple[int, BrokerFound]] = []
        """Messages to the supervisor, with their times (ms)."""
        self.now_ms = 0
        self.addresses = ToldAddresses(PortRange(9093, 9095), self._post, lambda: self.now_ms)
        self._cached = -1

    def _post(self, found: BrokerFound) -> None:
        self.told.append((self.now_ms, found))

    def pass_by(self, time_ms: int, *named: int, address: Address = BROKER) -> None:
        """Let this time pass; responses name these brokers."""
        for _second in range(time_ms // 1000):
            if named and self._cached != self.addresses.version:
                self._cached = self.addresses.version
                for node_id in named:
                    assert self.addresses.observe(node_id, address) is None
            self.now_ms += 1000
            self.addresses.try_again()


def test_an_unconfirmed_broker_is_told_at_intervals_that_double() -> None:
    clients = Clients()
    clients.pass_by(5 * MINUTE_MS, 7)
    times_ms = [at_ms for at_ms, _found in clients.told]
    intervals_ms = [after - before for before, after in pairwise(times_ms)]
    assert intervals_ms[:6] == [TOLD_AGAIN_MS * 2**number for number in range(6)]
    assert set(intervals_ms[6:]) == {TOLD_AGAIN_MS_MAX}


def test_an_unconfirmed_broker_makes_cached_responses_stale_only_when_it_is_told_again() -> None:
    clients = Clients()
    clients.pass_by(5 * MINUTE_MS, 7)
    assert clients.addresses.version == len(clients.told) - 1


def test_an_unconfirmed_broker_that_no_response_names_any_more_is_forgotten() -> None:
    clients = Clients()
    clients.pass_by(1000, 7)
    clients.pass_by(FORGOTTEN_MS)
    version = clients.addresses.version
    clients.pass_by(10 * MINUTE_MS)
    assert clients.addresses.version == version
    clients.pass_by(1000, 7)
    assert len(clients.told) == 2


def test_another_address_of_an_unconfirmed_broker_is_told_at_once() -> None:
    clients = Clients()
    clients.pass_by(1000, 7)
    clients.addresses.observe(7, MOVED)
    assert [found for _at_ms, found in clients.told] == [BrokerFound(7, *BROKER), BrokerFound(7, *MOVED)]


def test_a_confirmed_broker_is_told_no_more() -> None:
    clients = Clients()
    clients.addresses.observe(1, BROKER)
    clients.addresses.take({1: BROKER})
    version = clients.addresses.version
    clients.pass_by(MINUTE_MS)
    assert clients.addresses.observe(1, BROKER) == 9094
    assert (clients.addresses.version, len(clients.told)) == (version, 1)
