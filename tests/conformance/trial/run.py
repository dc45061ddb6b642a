"""`python -m tests.conformance.trial.run CLIENT.py`: run a client through `weir capture`, then `weir verify`.

The client is run as `python CLIENT.py HOST:PORT TOPIC`. The topic has two partitions. The broker limits each
client to 100 bytes/s of Produce, so that its responses have a throttle_time_ms. The broker of --upstream
keeps this quota. The exit code is that of `weir verify`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tests.kafka import Cluster, ports
from tests.wire.connection import Connection
from weir.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKER: Final = "3.9.1"
SETTINGS: Final = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
"""Short windows make short throttles."""
PRODUCE_RATE: Final = 100.0
"""Quota (bytes/s) of each client-id."""
READY_S: Final = 30.0
CLIENT_S: Final = 120.0
WEIR: Final = [sys.executable, "-m", "weir.cli"]


@click.command(help=__doc__)
@click.argument("client", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--upstream", metavar="HOST:PORT", help="A broker that runs; default: start Kafka 3.9.1.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep the capture in this file.")
def main(client: Path, upstream: str | None, out: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="weir-trial-") as directory:
        capture = out or Path(directory) / "client.weircap"
        if upstream is not None:
            _record(client, upstream, capture)
        else:
            with Cluster(BROKER, settings=SETTINGS, say=_say) as cluster:
                _record(client, cluster.bootstrap, capture)
        sys.stderr.flush()
        sys.exit(subprocess.run([*WEIR, "verify", str(capture)], check=False).returncode)


def _record(client: Path, upstream: str, capture: Path) -> None:
    """Run the client, and record its traffic."""
    topic = f"trial-{uuid.uuid4().hex[:8]}"
    _prepare(upstream, topic)
    with _recorder(upstream, capture) as address:
        _say(f"$ python {client} {address} {topic}")
        command = [sys.executable, str(client), address, topic]
        try:
            done = subprocess.run(command, stdout=sys.stderr, timeout=CLIENT_S, check=False)
            _say(f"the client ended with exit code {done.returncode}")
        except subprocess.TimeoutExpired:
            _say(f"the client was ended after {CLIENT_S:.0f} s")


def _prepare(upstream: str, topic: str) -> None:
    """Create the topic and the quota."""
    host, _, port = upstream.rpartition(":")
    wanted = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=2, replication_factor=1)
    entry = AlterClientQuotasRequest.EntryData(
        entity=[AlterClientQuotasRequest.EntityData(entity_type="client-id", entity_name=None)],
        ops=[AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=PRODUCE_RATE, remove=False)],
    )
    with Connection((host, int(port))) as connection:
        created = connection.ask(
            CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), CreateTopicsResponse, 5
        )
        if any(one.error_code for one in created.topics):
            raise click.ClickException(f"the broker did not create the topic: {created.topics}")
        altered = connection.ask(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse, 1)
        if any(one.error_code for one in altered.entries):
            raise click.ClickException(f"the broker did not set the quota: {altered.entries}")
        _await_producer_ids(connection)


def _await_producer_ids(connection: Connection) -> None:
    """Wait until the broker gives producer ids: right after its start it answers an error."""
    deadline = time.monotonic() + READY_S
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    while connection.ask(request, InitProducerIdResponse, 4).error_code:
        if time.monotonic() > deadline:
            raise click.ClickException("the broker does not give producer ids")
        time.sleep(0.1)


@contextmanager
def _recorder(upstream: str, capture: Path) -> Iterator[str]:
    """Run `weir capture` within the block; yield its address."""
    port = ports.free_range(2)  # the second one stands for the broker
    address = f"127.0.0.1:{port}"
    command = [*WEIR, "capture", "--upstream", upstream, "--listen", address, "--out", str(capture)]
    process = subprocess.Popen([*command, "--log-level", "warning"], env=dict(os.environ))
    try:
        _await_listener(port, process)
        yield address
    finally:
        process.terminate()
        process.wait(READY_S)


def _await_listener(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait for the listener without a connection, which would be in the capture."""
    deadline = time.monotonic() + READY_S
    while not _listens(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise click.ClickException("weir capture did not start")
        time.sleep(0.05)


def _listens(port: int) -> bool:
    """Return True if a listener has the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
