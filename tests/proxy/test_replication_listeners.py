"""Replication listeners of a server: where their connections go, and the limits that they do not have."""

from __future__ import annotations

import math
import socket
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from tests.kafka.ports import free_range
from tests.kfake.cluster import HOST
from tests.kfake.in_trio import Connection, serve
from tests.proxy.certificates import context_of, write_ca, write_pair
from tests.proxy.stage import METADATA, PING, PONG, Play, Stage
from tests.wire.frames import request, response
from weir.protocol.api import ApiKey
from weir.protocol.messages import MetadataRequest, MetadataResponse
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config.config import ConfigError
from weir.proxy.server import establish, refusals
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable

REPLICATION: Final = 100
"""Added to a broker's node id for its inter-broker listener, so that a stage tells its listeners apart."""

WATCHED: Final = request(
    MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name="new")], allow_auto_topic_creation=True
    ),
    9,
)
"""A request that Weir sends itself under a mutation quota, to find topics that are created automatically."""


class Cluster:
    """Ports of two brokers' inter-broker listeners, and of Weir's listeners for them."""

    def __init__(self) -> None:
        self.first_port = free_range(4)
        upstream = ",".join(f"{node_id}@{HOST}:{self.first_port + node_id}" for node_id in (0, 1))
        self.options: dict[str, Any] = {
            "replication_upstream": upstream,
            "replication_listen": f"{HOST}:{self.first_port + 2}",
        }

    async def start(self, stage: Stage, node_id: int) -> trio.CancelScope:
        scope: trio.CancelScope = await stage.nursery.start(
            lambda task_status: serve(
                stage.cluster,
                REPLICATION + node_id,
                known=False,
                port=self.first_port + node_id,
                task_status=task_status,
            )
        )
        return scope

    async def connect(self, stage: Stage, node_id: int) -> Connection:
        stage.clients.append(Connection(await trio.open_tcp_stream(HOST, self.first_port + 2 + node_id)))
        return stage.clients[-1]


def test_replication_listeners_lead_to_the_configured_addresses(play: Play) -> None:
    cluster = Cluster()
    node = MetadataResponse.MetadataResponseBroker(node_id=5, host="kafka-5", port=9093)
    told = MetadataResponse(brokers=[node])

    async def script(stage: Stage) -> None:
        for node_id in (0, 1):
            await cluster.start(stage, node_id)
            broker = await cluster.connect(stage, node_id)
            assert await broker.ask(PING) == PONG
            assert stage.cluster.asked[-1] == (REPLICATION + node_id, PING)
        stage.cluster.handlers[ApiKey.METADATA] = told
        for asked in (METADATA, WATCHED):
            assert await broker.ask(asked) == response(told, 9), "a broker's addresses pass unchanged"
        assert 5 not in stage.server.address_book.nodes
        assert stage.plane.requests()[ApiKey.HEARTBEAT, 4] == 2
        assert stage.plane.requests()[ApiKey.METADATA, 9] == 2

    mutations = QuotaTable({(Entity(DEFAULT), QuotaKey.CONTROLLER_MUTATION_RATE): 1.0})
    play(script, table=mutations, **cluster.options)


def test_principals_are_brokers_at_replication_listeners_only(play: Play) -> None:
    cluster = Cluster()

    async def script(stage: Stage) -> None:
        await cluster.start(stage, 0)
        for client in (await cluster.connect(stage, 0), await stage.connect(0)):
            assert await client.ask(PING) == PONG
        clients = [relay.connection.client for relay in stage.plane.relays]
        assert sorted(client.is_broker for client in clients) == [False, True]

    play(script, super_users="User:ANONYMOUS", **cluster.options)


def test_a_replication_listener_refuses_connections_while_its_broker_is_away(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(establish, "PROBE_S", 0.01)
    monkeypatch.setattr(refusals, "HOLD_S", math.inf)
    cluster = Cluster()

    async def refused(stage: Stage) -> bool:
        try:
            await cluster.connect(stage, 0)
        except OSError:
            return True
        return False

    async def script(stage: Stage) -> None:
        assert await (await stage.connect(0)).ask(PING) == PONG, "clients reach the broker"
        assert await (await cluster.connect(stage, 0)).frame() is None
        assert await refused(stage)
        assert stage.server.broker_states.is_up(0), "its state is that of its listener for clients"
        assert stage.plane.counters.closed_at[CloseReason.BROKER_UNREACHABLE, 0] >= 1
        await cluster.start(stage, 0)
        while await refused(stage):  # noqa: ASYNC110  # the kernel has no event
            await trio.sleep(0.005)
        assert await stage.clients[-1].ask(PING) == PONG
        assert stage.cluster.asked[-1] == (REPLICATION, PING)

    play(script, **cluster.options)


def test_limits_of_connections_do_not_apply_to_replication_listeners(play: Play) -> None:
    cluster = Cluster()

    async def script(stage: Stage) -> None:
        await cluster.start(stage, 0)
        client = await stage.connect(0)
        assert await client.ask(PING) == PONG
        for _ in range(30):  # ten windows of the rates
            assert await (await cluster.connect(stage, 0)).ask(PING) == PONG
        assert await (await stage.connect(0)).ask(PING) is None, "the limit of clients is reached"
        for broker in stage.clients[1:]:
            await broker.stream.aclose()
        await stage.closed(CloseReason.CLIENT_CLOSED, 30)
        assert await (await stage.connect(0)).ask(PING) is None, (
            "the ends of brokers' connections are not counted"
        )

    play(
        script,
        max_connections_per_ip=1,
        max_connection_creation_rate=1,
        quota_window_num=2,
        **cluster.options,
    )


def test_the_maximum_of_connections_does_not_cut_off_replication(play: Play) -> None:
    cluster = Cluster()

    async def script(stage: Stage) -> None:
        await cluster.start(stage, 0)
        assert await (await stage.connect(0)).ask(PING) == PONG
        for _ in range(3):
            assert await (await cluster.connect(stage, 0)).ask(PING) == PONG
        assert stage.plane.counters.closed[CloseReason.CONNECTION_LIMIT] == 0
        assert await (await stage.connect(0)).ask(PING) is None

    play(script, connections_max=1, **cluster.options)


def test_a_taken_replication_port_stops_the_start(play: Play) -> None:
    cluster = Cluster()
    cluster.options["replication_upstream"] = f"0@{HOST}:1"

    message = r"^cannot listen on 127.0.0.1:\d+ for broker 0: address already in use: choose another repl"
    with socket.create_server((HOST, cluster.first_port + 2)), pytest.raises(ConfigError, match=message):
        play(None, **cluster.options)


def test_certificates_tell_brokers_at_a_replication_listener_and_server_names_do_not_count(
    play: Play, tmp_path: Path
) -> None:
    cluster, domain = Cluster(), "kafka.test"
    cert, key = write_pair(tmp_path, HOST, f"*.{domain}")

    async def connect(stage: Stage, name: str) -> None:
        plain = await trio.open_tcp_stream(HOST, cluster.first_port + 2)
        tls = trio.SSLStream(
            plain, context_of("clients", name), server_hostname=f"broker-1.{domain}", https_compatible=True
        )
        stage.clients.append(Connection(tls))
        assert await stage.clients[-1].ask(PING) == PONG
        assert stage.cluster.asked[-1] == (REPLICATION, PING), "the port tells the broker"

    async def script(stage: Stage) -> None:
        await cluster.start(stage, 0)
        unfinished = await trio.open_tcp_stream(HOST, cluster.first_port + 2)
        for name in ("kafka", "alice"):
            await connect(stage, name)
        await unfinished.aclose()
        clients = [relay.connection.client for relay in stage.plane.relays]
        assert {client.user: client.is_broker for client in clients} == {"CN=kafka": True, "CN=alice": False}

    play(
        script,
        brokers=(0, 1),
        tls_cert=f"{cert},{key}",
        tls_client_auth="required",
        tls_client_ca=str(write_ca(tmp_path, "clients")),
        sni_domain=domain,
        broker_ports="",
        super_users="User:CN=kafka",
        connections_max=1,
        **cluster.options,
    )
