"""`weir capture` and `weir verify --frames`, as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from tests.cli.run_command import error_line
from tests.conformance.capture.pcaps import write_pcap
from tests.kafka.ports import free_range
from tests.kafka.waiting import eventually
from tests.kfake.cluster import Cluster
from tests.kfake.threads import Brokers
from tests.wire.frames import request, response
from weir.cli.exits import DONE, FAILED, INCOMPLETE, USAGE
from weir.cli.main import weir
from weir.conformance.capture import CaptureReader, CaptureWriter, Run, read
from weir.conformance.capture.tcp import Segment, TcpEndpoint
from weir.conformance.events import Bytes, Closed, Event, Opened, Side
from weir.protocol.api import ApiKey
from weir.protocol.messages import MetadataRequest, MetadataResponse, SaslAuthenticateRequest

if TYPE_CHECKING:
    from click.testing import Result

SECRET = b"\0user\0hunter2"
ASK = request(MetadataRequest(), 1)
ANSWER = response(MetadataResponse(), 1)
LOGIN = request(SaslAuthenticateRequest(auth_bytes=SECRET), 1, 2)
EVENTS: list[Event] = [
    Opened(0, 1, "c:1", "s:2"),
    Bytes(0, 2, Side.CLIENT, ASK),
    Bytes(0, 3, Side.SERVER, ANSWER),
    Closed(0, 4, Side.CLIENT),
    Closed(0, 4, Side.SERVER),
]


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(weir, arguments)


def capture_file(path: Path) -> Path:
    with CaptureWriter(path, Run(1)) as writer:
        for event in EVENTS:
            writer.write(event)
    return path


def test_a_capture_becomes_json_lines_on_stdout(tmp_path: Path) -> None:
    result = ran("verify", str(capture_file(tmp_path / "c")), "--frames")
    assert result.exit_code == DONE
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["event"] for line in found] == ["opened", "request", "response", "closed", "closed"]
    assert found[1]["api"] == "Metadata"
    assert ran("verify", str(tmp_path / "c"), "--frames", "--junit", "j").exit_code == USAGE


def test_a_damaged_capture_is_told_after_the_lines_before(tmp_path: Path) -> None:
    path = capture_file(tmp_path / "c")
    path.write_bytes(path.read_bytes()[:-3])
    result = ran("verify", str(path), "--frames")
    assert result.exit_code == INCOMPLETE
    assert len(result.stdout.splitlines()) == len(EVENTS)
    assert result.stderr.startswith(f"weir: {path}: damaged at byte ")


def test_a_pcap_file_becomes_a_capture_without_credentials(tmp_path: Path) -> None:
    client, broker = TcpEndpoint("10.0.0.1", 50_000), TcpEndpoint("10.0.0.2", 9092)
    write_pcap(
        tmp_path / "p",
        [
            Segment(1000, client, broker, 10, syn=True),
            Segment(2000, client, broker, 11, ASK),
            Segment(3000, client, broker, 11 + len(ASK), LOGIN),
        ],
    )
    out = tmp_path / "c"
    for _ in range(2):  # the second time it continues the file
        result = ran("capture", "--pcap", str(tmp_path / "p"), "--output", str(out))
        assert result.exit_code == DONE, result.output
    events = list(read(out))
    assert [event.connection for event in events if isinstance(event, Opened)] == [0, 1]
    data = b"".join(event.data for event in events if isinstance(event, Bytes))
    assert len(data) == 2 * (len(ASK) + len(LOGIN))
    assert SECRET not in data
    kept = tmp_path / "kept"
    options = ["--output", str(kept), "--with-credentials"]
    assert ran("capture", "--pcap", str(tmp_path / "p"), *options).exit_code == DONE
    assert LOGIN in b"".join(event.data for event in read(kept) if isinstance(event, Bytes))
    nothing = ran("capture", "--pcap", str(tmp_path / "p"), "--broker-port", "1", "--output", str(out))
    assert "no TCP connections of brokers" in error_line(nothing)


def test_a_pcap_file_without_a_packet_before_its_damage_says_what_is_damaged(tmp_path: Path) -> None:
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    (tmp_path / "p").write_bytes(head + struct.pack("<IIII", 1, 0, 0xFFFFFFFF, 60))
    result = ran("capture", "--pcap", str(tmp_path / "p"), "--output", str(tmp_path / "c"))
    assert "cut or damaged at byte 40: a packet of 4294967295 bytes" in error_line(result)
    assert not (tmp_path / "c").exists()
    client = ran("capture", "--pcap", str(tmp_path / "p"), "--output", str(tmp_path / "c"), "--", "true")
    assert "either --pcap or a CLIENT" in client.stderr


def test_capture_refuses_a_file_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"something else")
    result = CliRunner().invoke(
        weir, ["capture", "--upstream", "127.0.0.1:1", "--output", str(tmp_path / "c"), "--for", "1"]
    )
    assert "is not a capture" in error_line(result)


def test_capture_with_unusable_tls_files_stops_before_it_listens(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("broken")
    files = ["--set", f"tls_cert={tmp_path / 'cert.pem'}"]
    place = ["--listen", f"127.0.0.1:{free_range(1)}", "--output", str(tmp_path / "c")]
    with capture_logs() as logs:
        result = CliRunner().invoke(weir, ["capture", "--upstream", "127.0.0.1:1", *place, *files])
    assert "it holds no certificate" in error_line(result)
    assert [line["event"] for line in logs] == []


def served_broker() -> Brokers:
    """A broker that answers Metadata, and closes Weir's own connections."""
    return Brokers(Cluster(shy=True, handlers={ApiKey.METADATA: MetadataResponse()}))


def test_capture_relays_and_records_until_it_is_stopped(tmp_path: Path) -> None:
    broker, port, out = served_broker().__enter__(), free_range(3), tmp_path / "c"
    command = [
        sys.executable,
        "-m",
        "weir.cli",
        "capture",
        "--upstream",
        broker.address,
        "--output",
        str(out),
    ]
    command += ["--listen", f"127.0.0.1:{port}", "--set", f"broker_ports={port + 1}-{port + 2}"]
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command, stderr=stderr, stdout=stderr, env={**os.environ, "PYTHONPATH": "."}
        )
        try:
            assert eventually(lambda: "listening" in log.read_text())
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.settimeout(10)
                client.sendall(ASK)
                assert client.recv(65536) == ANSWER
            assert eventually(lambda: len(list(read(out, lambda _damage: None))) >= 1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == DONE
        finally:
            process.kill()
            process.wait()
            broker.stop()
    reader = CaptureReader(out)
    events = [event for event in reader if isinstance(event, Bytes)]
    assert ASK in b"".join(event.data for event in events if event.side is Side.CLIENT)
    assert ANSWER in b"".join(event.data for event in events if event.side is Side.SERVER)
    assert reader.runs[0].source == broker.address
    assert "0 bytes dropped" in log.read_text()


CLIENT = """
import os, socket, sys
bootstrap, frame, code = sys.argv[1:]
assert bootstrap == os.environ["KAFKA_BOOTSTRAP_SERVERS"]
host, port = bootstrap.split(":")
with socket.create_connection((host, int(port)), 10) as connection:
    if frame:
        connection.sendall(bytes.fromhex(frame))
        connection.recv(65536)
sys.exit(int(code))
"""
TRAILING = struct.pack(">i", len(ASK) - 3) + ASK[4:] + b"\0"


@pytest.mark.parametrize(
    ("frame", "code", "expected", "says"),
    [
        (ASK, 0, DONE, "no findings"),
        (TRAILING, 7, FAILED, "request-trailing-bytes"),
        (ASK, 7, INCOMPLETE, "the client ended with exit code 7"),
        (b"", 0, USAGE, "nothing was checked"),
    ],
    ids=["clean", "finding", "failing", "silent"],
)
def test_a_client_is_run_and_verified_with_one_exit_code(
    tmp_path: Path, frame: bytes, code: int, expected: int, says: str
) -> None:
    client = [sys.executable, "-c", CLIENT, "{bootstrap}", frame.hex(), str(code)]
    with served_broker() as broker:
        result = CliRunner(env={"WEIR_VERIFY_JUNIT": str(tmp_path / "junit.xml")}).invoke(
            weir, ["capture", "--upstream", broker.address, "--", *client]
        )
    assert result.exit_code == expected, result.output
    assert says in result.output
    assert (tmp_path / "junit.xml").read_text().count("<failure") == (expected == FAILED)


def test_a_client_ended_by_a_signal_without_a_name_is_told() -> None:
    result = CliRunner().invoke(
        weir, ["capture", "--upstream", "127.0.0.1:1", "--", "sh", "-c", "kill -40 $$"]
    )
    assert "weir: the client was ended by signal 40" in result.stderr
    assert result.exit_code == USAGE


def test_a_hangup_of_the_terminal_ends_the_client(tmp_path: Path) -> None:
    client = ["sh", "-c", 'echo $$ > "$0".new && mv "$0".new "$0" && exec sleep 600', str(tmp_path / "pid")]
    command = [sys.executable, "-m", "weir.cli", "capture", "--upstream", "127.0.0.1:1", "--", *client]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": "."})
    assert eventually((tmp_path / "pid").exists)
    process.send_signal(signal.SIGHUP)
    assert process.wait(120) == USAGE, "no capture to verify"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--for", "-1", "--", "true"], "-1 is not in the range >= 0 (s)"),
        (["--for", "nan", "--", "true"], "nan is not in the range"),
        (["--queue-bytes", "-5", "--", "true"], "-5 is not in the range >= 1 (bytes)"),
        (["--output", "/no/such/file", "--"], "no CLIENT behind --"),
    ],
)
def test_options_that_cannot_be_are_named(options: list[str], says: str) -> None:
    result = CliRunner().invoke(weir, ["capture", "--upstream", "127.0.0.1:1", *options])
    assert (result.exit_code, says in result.stderr) == (USAGE, True), result.output


def test_a_client_that_cannot_be_run_is_named() -> None:
    with served_broker() as broker:
        result = CliRunner().invoke(weir, ["capture", "--upstream", broker.address, "--", "/no/such/client"])
    assert result.exit_code == USAGE
    assert "weir: /no/such/client: cannot be run: No such file" in result.stderr


def is_listening(log: Path) -> bool:
    return "listening" in log.read_text()


@pytest.mark.slow
def test_errors_of_the_process_that_writes_end_in_the_exit_code_while_traffic_goes_on(tmp_path: Path) -> None:
    for harm, text in (("kill", "the process that writes it"), ("unlink", "was removed or replaced")):
        broker, port, out, log = served_broker().__enter__(), free_range(3), tmp_path / "c", tmp_path / harm
        command = [
            sys.executable,
            "-m",
            "weir.cli",
            "capture",
            "--upstream",
            broker.address,
            "--output",
            str(out),
        ]
        command += ["--listen", f"127.0.0.1:{port}", "--set", f"broker_ports={port + 1}-{port + 2}"]
        with log.open("wb") as stderr:
            process = subprocess.Popen(command, stderr=stderr, env={**os.environ, "PYTHONPATH": "."})
            try:
                assert eventually(partial(is_listening, log))
                if harm == "kill":
                    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
                    os.kill(int(children), signal.SIGKILL)
                else:
                    out.unlink()
                with socket.create_connection(("127.0.0.1", port)) as client:
                    client.settimeout(10)
                    for _ in range(3):
                        client.sendall(ASK)
                        assert client.recv(65536) == ANSWER
                process.send_signal(signal.SIGTERM)
                assert process.wait(120) == USAGE
            finally:
                process.kill()
                process.wait()
                broker.stop()
        assert text in log.read_text()
        assert "the capture lacks all that came after" in log.read_text()
