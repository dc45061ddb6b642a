"""Take-overs between processes at librdkafka's mock cluster: usage, mistakes, and a killed process."""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import closing
from typing import Final

import pytest

from tests.cli import cluster as wire
from tests.cli.cluster import cluster
from tests.integration.admin_port import HOST
from tests.integration.takeovers import BROKERS, PATIENCE_S, Generations, RdkafkaLoad, Running
from tests.kafka.ports import free_range
from tests.kafka.processes import Processes
from tests.wire.frames import request
from weir.protocol.messages import ApiVersionsRequest

pytestmark = [pytest.mark.slow]

FD: Final = 200
"""A descriptor that no other file of the test has."""
QUOTAS = """
[[quota]]
client_id = "rd"
producer_byte_rate = 1000000000
"""
SHARED = '[[quota]]\nclient_id = "whole"\nproducer_byte_rate = 1\nscope = "cluster"\n'
"""With windows of an hour, 36 KB are the quota."""
HOURS = ("--set", "quota_window_size_seconds=3600")
"""A rate that does not fall while a test runs."""


def rates(weirs: Generations) -> float:
    rows = weirs.admin.metrics().rows("weir_entity_rate_bytes_per_second")
    return sum(value for labels, value in rows.items() if dict(labels)["client_id"] == "rd")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_weir_that_takes_over_knows_the_usage_of_clients_and_no_record_is_lost(
    upstream: str, workers: str
) -> None:
    with Generations(upstream, QUOTAS, (*HOURS, "--set", f"workers={workers}")) as weirs:
        load = RdkafkaLoad(weirs.bootstrap, "t")
        with Running(load) as running:
            running.wait_for_more()
            for _ in range(3):
                number = weirs.start()
                assert weirs.ended(number - 1) == 0
                running.wait_for_more()
        assert load.tally.failures == []
        before = rates(weirs)
        assert before > 0
        number = weirs.start()
        assert weirs.ended(number - 1) == 0
        assert rates(weirs) == pytest.approx(before, rel=0.05), "the client has sent nothing to this process"


def test_workers_of_a_weir_that_takes_over_know_the_usage_of_a_quota_that_brokers_share() -> None:
    options = (*HOURS, "--set", "workers=2")
    with cluster(3) as (upstream, *_), Generations(f"{HOST}:{upstream}", SHARED, options) as weirs:
        assert told_ms(weirs.port + 1) == 0
        weirs.start()
        assert weirs.ended(1) == 0
        assert told_ms(weirs.port + 2) > 0
        weirs.start()
        assert weirs.ended(2) == 0
        assert told_ms(weirs.port + 3) > 0


def told_ms(port: int) -> int:
    """The throttle time (ms) that a produce request of 20 KB is told at this port."""
    client = wire.Producer(port, "whole")
    try:
        return client.produce(20_000)
    finally:
        client.close()


def test_a_weir_serves_on_if_its_successor_is_killed_or_misconfigured(upstream: str) -> None:
    with Generations(upstream) as weirs:
        load = RdkafkaLoad(weirs.bootstrap, "t")
        with Running(load) as running:
            running.wait_for_more()
            number = weirs.start_only()
            weirs.wait_for(number, '"event": "taking over"')
            os.kill(weirs.pid(number), signal.SIGKILL)
            assert weirs.ended(number) == -signal.SIGKILL
            if '"event": "listeners taken over"' not in weirs.log(number):
                weirs.wait_for(1, '"event": "take-over abandoned, serving on"')
                running.wait_for_more()
                assert weirs.start_with("--broker-ports", "1-2", "--admin", "127.0.0.1:1") == 2
                running.wait_for_more()
                number = weirs.start()
                assert weirs.ended(1) == 0
                running.wait_for_more()
        assert load.tally.failures == []


def test_a_client_that_connects_between_two_weirs_of_a_socket_unit_is_answered(upstream: str) -> None:
    """The test holds the listening socket, as systemd does."""
    with closing(Processes("weir-activated-")) as processes, socket.create_server((HOST, 0)) as listening:
        port = listening.getsockname()[1]
        ports = free_range(BROKERS)
        run = f"{sys.executable} -m weir.cli run --upstream {upstream} --listen {HOST}:{port}"
        shell = f"LISTEN_PID=$$ LISTEN_FDS=1 exec {run} --broker-ports {ports}-{ports + BROKERS - 1} 3<&{FD}"
        os.dup2(listening.fileno(), FD, inheritable=True)
        try:
            for number in (1, 2):
                client = socket.create_connection((HOST, port), timeout=PATIENCE_S)
                processes.start(str(number), ["/bin/bash", "-c", shell], pass_fds=[FD])
                with client, client.makefile("rb") as file:
                    client.sendall(request(ApiVersionsRequest(), 0))
                    assert len(file.read(4)) == 4
                processes.terminate(str(number), PATIENCE_S)
        finally:
            os.close(FD)
