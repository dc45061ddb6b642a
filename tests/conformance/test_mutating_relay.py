"""Defects planted on the wire: `weir capture` records them, and `weir verify` finds each by its rule."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from tests.conformance.batches import batch
from tests.conformance.captures import fetch, fetched
from tests.conformance.mutating_relay import MUTATIONS, MutatingRelay
from tests.kafka.ports import free_range
from tests.kafka.waiting import eventually
from tests.wire.frames import request, response
from weir.cli.exits import DONE
from weir.conformance.frames import FrameCutter
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)

if TYPE_CHECKING:
    from pathlib import Path

TOPIC: Final = CreateTopicsRequest.CreatableTopic(name="a", num_partitions=1, replication_factor=1)
CREATED: Final = CreateTopicsResponse.CreatableTopicResult(name="a")
OFFERED: Final = [
    ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=version)
    for key, version in ((1, 11), (12, 4), (18, 3), (19, 5))
]
ROUNDS: Final = (
    (
        (
            request(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3, 1),
            response(ApiVersionsResponse(api_keys=OFFERED), 3, 1),
        ),
    ),
    tuple(
        (
            request(HeartbeatRequest(group_id="g", member_id="m"), 4, number),
            response(HeartbeatResponse(), 4, number),
        )
        for number in (2, 3)
    ),
    *(
        (
            (
                request(CreateTopicsRequest(topics=[TOPIC]), version, version),
                response(CreateTopicsResponse(topics=[CREATED]), version, version),
            ),
        )
        for version in (5, 4)
    ),
    ((fetch(11, 6), fetched(batch(), 11, 6)),),
)
"""Requests with their responses; the client sends those of a round without waiting in between."""
ANSWERS: Final = dict(exchange for exchanges in ROUNDS for exchange in exchanges)
WAIT_S: Final = 20


class Server:
    """A server that answers the requests of ROUNDS, and closes behind the last, or at any other request."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        cutter = FrameCutter()
        with suppress(OSError), sock:
            while data := sock.recv(65536):
                for frame in cutter.feed(data, 0):
                    if frame.data not in ANSWERS:
                        return
                    sock.sendall(ANSWERS[frame.data])
                    if frame.data == ROUNDS[-1][0][0]:
                        return

    def close(self) -> None:
        """Accept no more."""
        self._listening.close()


def converse(port: int) -> None:
    """Send all requests; wait for the responses of each round, and at last for the end."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(WAIT_S)
        cutter = FrameCutter()
        for exchanges in ROUNDS:
            client.sendall(b"".join(request for request, _response in exchanges))
            missing = len(exchanges)
            while missing > 0:
                data = client.recv(65536)
                if not data:
                    return
                missing -= len(list(cutter.feed(data, 0)))
        assert not client.recv(65536)


def captured(defect: str | None, out: Path) -> None:
    """Record the conversation by `weir capture`, with the relay between it and the server."""
    server, port, log = Server(), free_range(3), out.with_suffix(".log")
    with MutatingRelay("127.0.0.1", server.port, defect) as relay, log.open("wb") as stderr:
        command = [sys.executable, "-m", "weir.cli", "capture", "--out", str(out)]
        command += ["--upstream", relay.address, "--listen", f"127.0.0.1:{port}"]
        command += ["--broker-ports", f"{port + 1}-{port + 2}"]
        environment = {**os.environ, "PYTHONPATH": "."}
        process = subprocess.Popen(command, stderr=stderr, stdout=stderr, env=environment)
        try:
            assert eventually(lambda: "listening" in log.read_text())
            converse(port)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == DONE
        finally:
            process.kill()
            process.wait()
            server.close()
    assert "0 bytes dropped" in log.read_text()


def verified(out: Path) -> set[str]:
    """The rules of errors and warnings that `weir verify` names."""
    command = [sys.executable, "-m", "weir.cli", "verify", str(out), "--json"]
    environment = {**os.environ, "PYTHONPATH": "."}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False)
    found = [one["first"] for one in json.loads(done.stdout)["findings"]]
    return {one["rule"] for one in found if one["severity"] != "note"}


@pytest.mark.slow
@pytest.mark.parametrize("defect", [None, *MUTATIONS])
def test_a_defect_on_the_wire_is_found_by_its_rule_and_nothing_without_it(
    defect: str | None, tmp_path: Path
) -> None:
    captured(defect, tmp_path / "c.weircap")
    assert verified(tmp_path / "c.weircap") == (set() if defect is None else {MUTATIONS[defect][0]})
