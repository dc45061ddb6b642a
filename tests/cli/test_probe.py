"""`weir probe` as a command: its output, exit codes and files."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner, Result

from tests.admin.fake_api import FakeApi, served
from tests.conformance.probe.stub_target import stub_target
from tests.kfake.cluster import up_to
from tests.kfake.threads import Brokers
from tests.matrix import first_core
from weir.cli.main import weir
from weir.conformance.probe import runner
from weir.conformance.probe.link import HungError
from weir.conformance.probe.measure import measurement
from weir.protocol.api import ApiKey
from weir.protocol.messages import SaslAuthenticateResponse, SaslHandshakeResponse
from weir.protocol.values import Message


@pytest.fixture
def stub() -> Iterator[Brokers]:
    with stub_target() as target:
        yield target


def probe(stub: Brokers, *options: str | Path) -> Result:
    return CliRunner().invoke(weir, ["probe", "--upstream", stub.address, *map(str, options)])


def broken(stub: Brokers, version: int = 2) -> None:
    usual = stub.cluster.handler(ApiKey.DELETE_TOPICS)
    stub.cluster.handlers[ApiKey.DELETE_TOPICS] = lambda request, found, _now_ms: (
        None if found == version else usual(request, found, 0)
    )


def test_probe_exits_with_1_and_prints_the_command_that_repeats_a_failure(stub: Brokers) -> None:
    broken(stub)
    result = probe(stub, "--only", "DeleteTopics/*/maximal", "--seed", "7")
    assert result.exit_code == 1
    assert result.output.startswith("FAILED DeleteTopics/v2/maximal: The target closes the connection")
    command = f"weir probe --upstream {stub.address} --only 'DeleteTopics/v2/maximal' --seed 7"
    assert result.output.splitlines()[1:] == [f"    {command}", "5 cases of 1 API: 4 passed, 1 failed"]
    again = probe(stub, "--only", "DeleteTopics/v2/maximal", "--seed", "7")
    assert again.output.endswith("1 case of 1 API: 0 passed, 1 failed\n")


def test_probe_lists_the_cases_that_it_would_run(stub: Brokers) -> None:
    chosen = ("--only", "DeleteTopics", "--skip", "*/random-*")
    listed = probe(stub, *chosen, "--list").output.splitlines()
    assert stub.cluster.topics == {}
    run = json.loads(probe(stub, *chosen, "--json").stdout)["results"]
    assert (len(listed) > 10, listed) == (True, [result["case"] for result in run])


def test_a_port_that_speaks_another_protocol_is_named(stub: Brokers) -> None:
    with served(FakeApi()) as url:
        result = CliRunner().invoke(weir, ["probe", "--upstream", url.removeprefix("http://")])
    assert "answers 'HTTP': does it speak HTTP? name a port for Kafka's clients" in result.output
    result = CliRunner().invoke(weir, ["top", "--once", "--admin", stub.address])
    assert "closed the connection without an answer: is it a port for Kafka's clients" in result.output


def test_probe_fails_only_for_failures_that_the_baseline_lacks(stub: Brokers, tmp_path: Path) -> None:
    broken(stub)
    known = tmp_path / "known.json"
    known.write_text(probe(stub, "--only", "DeleteTopics/*/m??imal", "--json").stdout)
    assert json.loads(known.read_text())["results"][0]["case"] == "DeleteTopics/v0/minimal"
    assert probe(stub, "--only", "DeleteTopics/*/m??imal", "--baseline", known).exit_code == 0
    broken(stub, 3)
    result = probe(stub, "--only", "DeleteTopics/*/m??imal", "--baseline", known)
    failed = [line.split(":")[0] for line in result.output.splitlines() if line.startswith("FAILED")]
    assert (result.exit_code, failed) == (1, ["FAILED DeleteTopics v3, 2 cases"])


def test_probe_compares_outcomes_with_expected_ones(stub: Brokers, tmp_path: Path) -> None:
    expected = tmp_path / "expected.json"
    broken(stub)
    assert probe(stub, "--only", "DeleteTopics/*/m??imal", "--write-expect", expected).exit_code == 1
    assert probe(stub, "--only", "DeleteTopics/*/m??imal", "--expect", expected).exit_code == 0
    changed = json.loads(expected.read_text())
    changed["DeleteTopics"]["minimal"] = {"answer": "0-1,4", "closed": "2", "error 3": "3"}
    changed["Fetch"] = {"x": {"closed": "0"}}
    expected.write_text(json.dumps(changed))
    result = probe(stub, "--only", "DeleteTopics/*/m??imal", "--expect", expected)
    assert result.exit_code == 1
    assert [line for line in result.output.splitlines() if line.startswith("DIFFERS")] == [
        "DIFFERS DeleteTopics/v3/minimal: expected error 3, found answer"
    ]
    skipped = probe(stub, "--skip", "*", "--expect", expected)
    assert (skipped.exit_code, "no case" in skipped.stderr) == (2, True)
    others = probe(stub, "--only", "*/minimal", "--skip", "DeleteTopics/v3", "--expect", expected)
    assert "DeleteTopics/v3" not in others.output
    assert "DeleteTopics/v4/minimal" not in others.output
    assert "DIFFERS Metadata/v0/minimal" in others.output
    whole = probe(stub, "--expect", expected, "--timeout-s", "1")
    assert "DIFFERS Fetch/v0/x: expected closed, found no such case" in whole.output
    assert "DIFFERS Metadata/v0/minimal: expected no such case, found answer" in whole.output


def test_probe_expects_the_outcomes_of_a_broker_that_weir_knows(stub: Brokers) -> None:
    chosen = ("--only", "DeleteTopics/v1/minimal", "--only", "Produce/v4/bytes-negative-nullable")
    stub.cluster.spoken |= up_to({ApiKey.PRODUCE: 4})
    stub.cluster.handlers[ApiKey.PRODUCE] = lambda *_: stub.wait_for_stop()
    result = probe(stub, *chosen, "--expect", "kafka-3.9.1", "--timeout-s", "0.2")
    assert result.exit_code == 0, result.output
    assert "EXPECTED Produce/v4/bytes-negative-nullable/topic_data.partition_data.records" in result.output
    assert "The same fault is in Kafka 3.9.1, 4.2.0, 4.4.0: " in result.output
    assert "none of kafka-0.10.2.2, " in probe(stub, "--expect", "kafka-0.9").stderr
    assert "leave both out" in probe(stub, "--expect", "kafka-3.9.1", "--seed", "1").stderr


def test_probe_cannot_run_without_a_server_a_case_or_right_options(stub: Brokers, tmp_path: Path) -> None:
    assert probe(stub, "--only", "Nothing").exit_code == 2
    assert probe(stub, "--set", "upstream_sasl_username=alice").exit_code == 2
    for wrong in ("0", "nan", "inf"):
        assert "not in the range > 0" in probe(stub, "--timeout-s", wrong).stderr
    os.mkfifo(tmp_path / "fifo")
    assert "fifo: cannot write it: it is no regular file" in probe(stub, "--sarif", tmp_path / "fifo").stderr
    measured = probe(stub, "--profile", "quotas", "--measure", "--sarif", tmp_path / "s", "--only", "Fetch")
    assert "--measure has no cases: leave out --only, --sarif" in measured.stderr
    assert "Try 'weir probe --help'" in probe(stub, "--set", "uplift=maybe").stderr
    assert "--set uplift: must be true or false" in probe(stub, "--set", "uplift=").stderr
    assert probe(stub, "--set", f"upstream_tls={tmp_path / 'missing'}").exit_code == 2
    other = tmp_path / "other"
    other.write_text("no JSON")
    assert probe(stub, "--expect", other).exit_code == 2
    assert probe(stub, "--baseline", other).exit_code == 2
    stub.stop()
    assert probe(stub).exit_code == 2
    assert CliRunner().invoke(weir, ["probe", "--upstream", "nonsense"]).exit_code == 2


def test_a_target_that_stops_is_told_in_one_line_behind_the_failures_until_then(
    stub: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "GONE_S", 0.0)
    usual = stub.cluster.handler(ApiKey.API_VERSIONS)
    left = [3]

    def last(request: Message, version: int, _now_ms: int) -> Message | bytes | None:
        left[0] -= 1
        if not left[0]:
            stub.stop()
        return usual(request, version, 0) if left[0] else b"unreadable"

    stub.cluster.handlers[ApiKey.API_VERSIONS] = last
    result = probe(stub, "--only", "ApiVersions/*/m??imal", "--only", "ApiVersions/*/random-?")
    assert result.exit_code == 2
    assert result.stdout.startswith("FAILED ApiVersions/v0/maximal: The target sends an unreadable response")
    assert result.stdout.endswith(
        "cases were run: the server stopped.\n2 cases of 1 API: 1 passed, 1 failed\n"
    )
    (text,) = result.stderr.splitlines()
    assert "stopped at the case ApiVersions/v0/random-0" in text
    assert "2 of 20 cases were done; the topic weir-probe-" in text


@pytest.mark.parametrize("number", first_core([signal.SIGINT, signal.SIGTERM]))
def test_a_signal_removes_the_scratch_topic(stub: Brokers, number: signal.Signals) -> None:
    process: list[subprocess.Popen[bytes]] = []
    killed: list[int] = []
    usual = stub.cluster.handler(ApiKey.API_VERSIONS)

    def signalled(request: Message, version: int, _now_ms: int) -> Message | bytes | None:
        if stub.cluster.topics and not killed:
            killed.append(number)
            os.kill(process[0].pid, number)
        return usual(request, version, 0)

    stub.cluster.handlers[ApiKey.API_VERSIONS] = signalled
    command = [
        sys.executable,
        "-m",
        "weir.cli",
        "probe",
        "--upstream",
        stub.address,
        "--only",
        "ApiVersions/*/m??imal",
    ]
    process.append(subprocess.Popen([*command, "--random", "100"]))
    assert process[0].wait(60) == 128 + number
    assert stub.cluster.topics == {}


def test_sigterm_ends_a_measurement_so_that_its_quotas_are_removed(
    stub: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(measurement, "measure", measure)
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        assert probe(stub, "--profile", "quotas", "--measure").exit_code == 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_measurement_names_the_target_that_does_not_answer(
    stub: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object) -> None:
        raise HungError("no response came in time")

    monkeypatch.setattr(measurement, "measure", measure)
    result = probe(stub, "--profile", "quotas", "--measure")
    assert (result.exit_code, result.stderr) == (2, f"weir: {stub.address}: no response came in time\n")


def test_probe_over_tls_trusts_the_given_authority_only(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authorities = [trustme.CA(), trustme.CA()]
    authorities[0].issue_cert("127.0.0.1").configure_cert(context)
    files = [tmp_path / "right.pem", tmp_path / "other.pem"]
    for authority, file in zip(authorities, files, strict=True):
        authority.cert_pem.write_to_path(str(file))
    with stub_target(context) as stub:
        assert (
            probe(
                stub,
                "--only",
                "Metadata/v9/minimal",
                "--set",
                f"upstream_tls={files[0]}",
            ).exit_code
            == 0
        )
        other = probe(stub, "--set", f"upstream_tls={files[1]}")
        assert (other.exit_code, "CERTIFICATE_VERIFY_FAILED" in other.stderr) == (2, True)


def test_a_refused_login_is_told_without_the_password(stub: Brokers, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pass-word")
    stub.cluster.spoken |= up_to({ApiKey.SASL_AUTHENTICATE: 1, ApiKey.SASL_HANDSHAKE: 1})
    stub.cluster.handlers[ApiKey.SASL_HANDSHAKE] = lambda *_: SaslHandshakeResponse()
    refused = SaslAuthenticateResponse(error_code=58)
    stub.cluster.handlers[ApiKey.SASL_AUTHENTICATE] = lambda *_: refused
    result = probe(
        stub,
        *("--set", "upstream_sasl_username=alice", "--set", f"upstream_sasl_password_file={secret}"),
        *("--set", "upstream_sasl_mechanism=PLAIN"),
    )
    assert result.exit_code == 2
    assert "refuses the login with error 58 (SASL_AUTHENTICATION_FAILED)" in result.stderr
    assert "pass-word" not in result.output


@pytest.mark.parametrize("option", ["--baseline", "--expect"])
@pytest.mark.parametrize("data", [b'{"x": ' + b"[" * 100_000, b'{"target": "\xff"}', b'{"\xff": {}}'])
def test_probe_refuses_files_of_deep_json_or_other_text(
    stub: Brokers, tmp_path: Path, option: str, data: bytes
) -> None:
    file = tmp_path / "known.json"
    file.write_bytes(data)
    result = probe(stub, option, file)
    assert result.exit_code == 2
    reason = "it is not UTF-8" if b"\xff" in data else "not an output of weir probe --"
    assert f"known.json: {reason}" in result.output
    assert stub.cluster.received == []
