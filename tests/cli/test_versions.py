"""`weir probe --versions`: the table, the JSON, and a line for each way in which a broker does not answer."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.run_command import error_line
from tests.integration.conftest import StartWeir, start_weir
from tests.kafka.fixtures import StartCluster, kafka_cluster
from tests.kfake.cluster import Cluster
from tests.kfake.threads import Brokers
from tests.wire.frames import framed, response
from weir.cli.exits import DONE
from weir.cli.main import weir
from weir.protocol.api import ApiKey
from weir.protocol.messages import ApiVersionsResponse
from weir.protocol.versions import VersionRange

__all__ = ["kafka_cluster", "start_weir"]

HOST = "127.0.0.1"
KAFKA_0_10_2 = {4242: (0, 3), 0: (0, 2), 3: (0, 2), 11: (0, 1), 18: (0, 0), 19: (0, 1)}
"""Some of its APIs, and one of nobody's; in no order."""


def speaking(ranges: dict[int, tuple[int, int]]) -> Cluster:
    return Cluster(spoken={key: VersionRange(least, most) for key, (least, most) in ranges.items()})


class Closing(Brokers):
    def __init__(self, answer: bytes) -> None:
        super().__init__(Cluster())
        self._answer = answer

    def answer(self, connection: socket.socket, _frame: bytes, _node_id: int) -> None:
        connection.sendall(self._answer)
        raise ConnectionAbortedError


def run(*arguments: str) -> Result:
    return CliRunner().invoke(weir, ["probe", "--versions", *arguments])


def shown(*arguments: str, ranges: dict[int, tuple[int, int]] = KAFKA_0_10_2) -> str:
    with Brokers(speaking(ranges)) as brokers:
        result = run("--upstream", brokers.address, *arguments)
    assert result.exit_code == DONE, result.output
    assert result.stderr == ""
    return result.stdout.replace(brokers.address, "BROKER")


def rows(table: str) -> dict[str, str]:
    lines = (line.split() for line in table.splitlines()[1:] if line.strip())
    return {key: " ".join(words) for key, *words in lines}


def test_versions_prints_a_plain_table_in_a_pipe() -> None:
    table = shown()
    assert table.isascii()
    assert "\x1b" not in table
    assert table.splitlines()[0].split() == ["key", "API", "broker", "Weir", "offered", "by", "uplift"]
    assert rows(table) == {
        "0": "Produce 0-2 0-13 0-2",
        "3": "Metadata 0-2 0-13 0-3 3 throttle_time_ms inserted",
        "11": "JoinGroup 0-1 0-9 0-3 2-3 throttle_time_ms inserted",
        "18": "ApiVersions 0 0-5 0-2 1-2 throttle_time_ms inserted",
        "19": "CreateTopics 0-1 0-7 0-6 2-3 throttle_time_ms inserted, 4-6 translated",
        "48": "DescribeClientQuotas none 0-1 1 answered by Weir",
        "49": "AlterClientQuotas none 0-1 1 answered by Weir",
        "4242": "unknown to Weir 0-3 none hidden",
        "BROKER:": "8 APIs, 4 with versions by uplift, 1 hidden",
    }


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "begins with b'HTTP'"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "speaks TLS"),
        (framed(b"\0\0\0\x07" + bytes(10)), "request 7"),
        (framed(b"\0\0\0\0" + b"\0\0\xff\xff\xff\xf0"), "no ApiVersions response"),
        (framed(b"\0\0\0\0"), "no ApiVersions response"),
        (response(ApiVersionsResponse(error_code=35), 0, 0), "error 35"),
        (b"", "closed the connection"),
        (response(ApiVersionsResponse(), 0, 0)[:-1], "closed the connection"),
    ],
    ids=["HTTP", "TLS", "another's answer", "garbage", "empty", "error", "closes", "closes halfway"],
)
def test_versions_reports_a_malformed_response_in_one_line(answer: bytes, words: str) -> None:
    with Closing(answer) as brokers:
        line = error_line(run("--upstream", brokers.address))
    assert line.startswith(f"weir: {brokers.address}: ")
    assert words in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--upstream", "kafka"], "upstream is 'kafka', must be HOST:PORT"),
        (["--upstream", "a:1,b:2"], "upstream is 'a:1,b:2', one broker only: choose one with --upstream"),
        (["--upstream", "no.such.invalid:1"], "no.such.invalid:1: "),
        (["--list", "--only", "Fetch", "--measure"], "runs no cases: leave out --list, --only, --measure"),
        ([], "no upstream: say where Kafka is with --upstream HOST:PORT, or WEIR_UPSTREAM"),
        (["--config", "/no/such.toml"], "/no/such.toml: cannot read the configuration"),
        (
            ["--upstream", "a:1", "--set", "upstream_sasl_mechanism=PLAIN"],
            "upstream_sasl_mechanism is set without upstream_sasl_username and upstream_sasl_password_file",
        ),
    ],
)
def test_versions_refuses_invalid_options(arguments: list[str], words: str) -> None:
    assert words in error_line(run(*arguments))


UPLIFTED_0_10_2 = {
    **dict.fromkeys((10, 12, 13, 14, 15, 16, 18), 2),
    ApiKey.METADATA.value: 3,
    ApiKey.JOIN_GROUP.value: 3,
    ApiKey.OFFSET_COMMIT.value: 4,
    ApiKey.OFFSET_FETCH.value: 4,
    ApiKey.CREATE_TOPICS.value: 6,
    ApiKey.DELETE_TOPICS.value: 5,
}


def apis(*arguments: str) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exit_code == DONE, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["apis"]
    return found


@pytest.mark.broker
@pytest.mark.parametrize(
    ("version", "uplifted"), [("0.10.2.2", UPLIFTED_0_10_2), ("4.2.0", {}), ("4.4.0", {})]
)
def test_versions_shows_the_versions_of_a_real_broker(
    kafka_cluster: StartCluster, version: str, uplifted: dict[int, int]
) -> None:
    found = apis("--upstream", kafka_cluster(version).bootstrap)
    assert {each["api_key"]: each["offered"]["max"] for each in found if each["uplift"]} == uplifted
    assert ApiKey.PRODUCE in {each["api_key"] for each in found}
    assert [each for each in found if each["offered"] is None] == [], "the schemas know every API of Kafka's"


@pytest.mark.broker
@pytest.mark.parametrize(
    "options",
    [
        (),
        (
            "--set",
            "uplift=false",
        ),
    ],
    ids=["uplift", "no-uplift"],
)
def test_versions_shows_the_versions_that_a_running_weir_offers(
    kafka_cluster: StartCluster, start_weir: StartWeir, options: tuple[str, ...]
) -> None:
    bootstrap = kafka_cluster("0.10.2.2").bootstrap
    weir = start_weir(bootstrap, options=options)
    shown = {each["api_key"]: each["offered"] for each in apis("--upstream", bootstrap, *options)}
    told = {each["api_key"]: each["broker"] for each in apis("--upstream", weir.bootstrap)}
    for added in (ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS):
        assert shown.pop(added) == {"min": 1, "max": 1}
        assert told.pop(added) is None, "the command asks in v0: what Weir adds is for newer clients"
    assert told == shown
