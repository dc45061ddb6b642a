"""Workers without processes: the link, and the charges, counters and tables that go over it."""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Hashable
from typing import Any, NoReturn

import pytest
import trio
import trio.testing

from tests.proxy.worker_rigs import link_pair
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config import config
from weir.proxy.config.config import ConfigError
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.snapshots.gauges import Gauges
from weir.proxy.net.drivers import monotonic_us, run_in_trio
from weir.proxy.net.reactor import Reactor
from weir.proxy.workers import link
from weir.proxy.workers.charges import ChargeReader, LimiterCharge, take
from weir.proxy.workers.counts import Count, WorkerCounts, increase
from weir.proxy.workers.link import LinkError, Received
from weir.proxy.workers.messages import BrokerAddresses, Charges, ConnectionsChanged, Flush, Listen
from weir.proxy.workers.receiver import Receiver, Rest
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable
from weir.quotas.table.options import Options, Scope

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
EACH = (Entity(client_id="each"), PRODUCE)
WHOLE = (Entity(client_id="whole"), PRODUCE)
TABLE = QuotaTable({EACH: 100.0, WHOLE: 100.0}, options={WHOLE: Options(scope=Scope.CLUSTER)})
UPSTREAM = {"upstream": "broker:9092"}
NOW_MS = 1_000_000
LISTEN = Listen(1, False, 2)


def charged(registry: QuotaRegistry) -> list[LimiterCharge]:
    return [charge for charge in ChargeReader(registry).look(NOW_MS) if charge is not None]


def produce(registry: QuotaRegistry, client_id: str, units: int, node_id: int = 1) -> int:
    """Charge a client at a broker; return its throttle time (ms)."""
    return registry.of(node_id).ledger("", client_id, NOW_MS).charge_produce(units, NOW_MS)


@pytest.mark.trio
async def test_a_message_waits_for_the_one_before_it_that_needs_trio() -> None:
    (ours, theirs), reactor = link_pair(), Reactor(monotonic_us)
    taken, rest = list[object](), trio.Event()

    def obey(received: Received) -> Rest | None:
        taken.append(received.message)
        return rest.wait if len(taken) == 1 else None

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Receiver(reactor, theirs, obey).run)
        nursery.start_soon(run_in_trio, reactor)
        ours.post(Flush(1))
        ours.post(Flush(2))
        await trio.testing.wait_all_tasks_blocked()
        assert taken == [Flush(1)]
        rest.set()
        await trio.testing.wait_all_tasks_blocked()
        assert taken == [Flush(1), Flush(2)]
        nursery.cancel_scope.cancel()
    for end in (ours, theirs, reactor):
        end.close()


def test_a_message_longer_than_a_packet_arrives_whole() -> None:
    message = BrokerAddresses([(node_id, f"broker-{node_id}.example", 9092) for node_id in range(10_000)])

    async def act() -> None:
        ours, theirs = link_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.send_forever)
            ours.post(message)
            assert await theirs.receive() == (message, [])
            nursery.cancel_scope.cancel()
        ours.close()
        with pytest.raises(LinkError, match="ended"):
            await theirs.receive()
        theirs.close()

    trio.run(act)


def test_charges_of_a_name_that_utf_8_cannot_encode_arrive() -> None:
    """Also when compiled: the names of limiters and of quotas are pickled then."""
    registry = QuotaRegistry(QuotaTable({(Entity(client_id=DEFAULT), PRODUCE): 100.0}))
    produce(registry, "half \ud800", 5_000)
    message = Charges(charged(registry))

    async def act() -> None:
        ours, theirs = link_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.send_forever)
            ours.post(message)
            assert await theirs.receive() == (message, [])
            nursery.cancel_scope.cancel()
        ours.close()
        theirs.close()

    trio.run(act)


def test_copies_of_listening_sockets_arrive_with_their_message() -> None:
    async def act() -> None:
        ours, theirs = link_pair()
        near, far = socket.socketpair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.send_forever)
            ours.post(LISTEN, [near, near])
            message, socks = await theirs.receive()
            nursery.cancel_scope.cancel()
        assert message == LISTEN
        for sent, sock in zip((b"a", b"b"), socks, strict=True):
            sock.sendall(sent)
            assert far.recv(1) == sent
        for sock in (near, far, *socks):
            sock.close()
        ours.close()
        theirs.close()

    trio.run(act)


def test_copies_of_sockets_that_were_not_sent_are_closed_with_the_link() -> None:
    async def act() -> None:
        ours, theirs = link_pair()
        near, far = socket.socketpair()
        ours.post(ConnectionsChanged(["10.0.0.1"] * 1_000_000, []))  # more than the kernel keeps
        ours.post(LISTEN, [near])
        near.close()
        ours.close()
        assert far.recv(1) == b""
        far.close()
        theirs.close()

    trio.run(act)


def test_a_packet_for_which_the_kernel_has_no_room_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors that are in flight in sockets are limited, too."""
    failures = [errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS]

    async def act() -> None:
        ours, theirs = link_pair()
        really = ours._sock.sendmsg

        async def send(*parts: Any) -> int:
            if failures:
                raise OSError(failures.pop(), "")
            return await really(*parts)

        monkeypatch.setattr(ours._sock, "sendmsg", send)
        with monkeypatch.context() as patched:
            patched.setattr(link, "_parts", no_room)
            ours.post(ConnectionsChanged(["a"], []))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.send_forever)
            assert await theirs.receive() == (ConnectionsChanged(["a"], []), [])
            nursery.cancel_scope.cancel()
        ours.close()
        theirs.close()

    trio.run(act, clock=trio.testing.MockClock(autojump_threshold=0.001))
    assert failures == []


def no_room(_unsent: object) -> NoReturn:
    raise BlockingIOError


def test_another_process_absorbs_charges() -> None:
    one, other = QuotaRegistry(TABLE), QuotaRegistry(TABLE)
    produce(one, "whole", 5_000)
    charges = charged(one)
    assert [charge.used.charges for charge in charges] == [[(0, 5_000.0)]]
    take(other, charges, NOW_MS, count=False)
    assert produce(other, "whole", 1, node_id=2) > 0
    assert [charge.used.charges for charge in charged(other)] == [[(0, 1.0)]]


def test_two_looks_at_charges_may_run_at_the_same_time() -> None:
    """A take-over looks while a periodic look has not ended."""
    registry = QuotaRegistry(TABLE)
    reader = ChargeReader(registry)
    registry.of(1).ledger("", "each", NOW_MS).charge_produce(1, NOW_MS)
    first = reader.look(NOW_MS)
    assert next(first) is not None
    assert not any(reader.look(NOW_MS + 1_000_000))
    assert not any(first)


def test_the_supervisor_counts_charges_and_throttles_of_workers() -> None:
    worker, supervisor = QuotaRegistry(TABLE), QuotaRegistry(TABLE)
    wait_ms = produce(worker, "each", 5_000)
    assert wait_ms > 0
    take(supervisor, charged(worker), NOW_MS, count=True)
    (limiter,) = supervisor.of(1).produce
    assert (limiter.charged, limiter.throttled, limiter.throttle_ms_total) == (5_000, 1, wait_ms)
    assert limiter.rate(NOW_MS) == next(iter(worker.of(1).produce)).rate(NOW_MS)


def test_the_increase_of_counters_is_what_came_after_the_former_reading() -> None:
    drained: Hashable = (CloseReason.DRAIN_TIMEOUT, 1)
    before = counts({"throttles": 3, "closed_at": Counter({drained: 2}), "requests": Counter({(0, 9): 4})})
    later = Counter({drained: 5, (CloseReason.DRAIN_TIMEOUT, 2): 1})
    now = counts({"throttles": 5, "closed_at": later, "requests": Counter({(0, 9): 4, (1, 2): 8})})
    assert increase(now, before).counters == {
        "throttles": 2,
        "closed_at": {drained: 3, (CloseReason.DRAIN_TIMEOUT, 2): 1},
        "requests": {(1, 2): 8},
    }
    assert increase(now, None) == now


def counts(counters: dict[str, Count]) -> WorkerCounts:
    """A reading; all that is not given is empty."""
    return WorkerCounts(counters, [], 0, [], Gauges())


@pytest.mark.parametrize("written", ["many", "-1", -1])
def test_another_number_of_workers_is_refused(written: object) -> None:
    with pytest.raises(ConfigError, match="workers"):
        config.load(None, {**UPSTREAM, "workers": written})


def test_the_supervisor_knows_the_request_time_of_workers_by_api() -> None:
    each = (Entity(client_id="each"), QuotaKey.REQUEST_PERCENTAGE)
    worker, supervisor = (QuotaRegistry(QuotaTable({each: 100.0})) for _ in range(2))
    ledger = worker.of(1).ledger("", "each", NOW_MS)
    reader = ChargeReader(worker)
    for api_keys in ((0, 1, 0), (1, 999)):
        for api_key in api_keys:
            ledger.charge_request(api_key, 10_000.0, NOW_MS)
        found = [charge for charge in reader.look(NOW_MS) if charge is not None]
        take(supervisor, found, NOW_MS, count=True)
    (mine,), (told,) = worker.of(1).request, supervisor.of(1).request
    assert len(mine.by_api) == 3
    assert told.by_api == pytest.approx(mine.by_api)
