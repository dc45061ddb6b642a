"""`weir calibrate` as a command: what it refuses; at a real broker a file that works, and nothing left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

from tests.kafka.fixtures import StartCluster, kafka_cluster
from tests.kafka.waiting import eventually
from weir.cli.exits import DONE, FAILED, USAGE
from weir.cli.main import weir
from weir.protocol.messages import DescribeClientQuotasResponse, MetadataRequest, MetadataResponse
from weir.proxy.addresses import Address
from weir.proxy.config import config
from weir.proxy.config.config import parse_address
from weir.proxy.control.cluster.access import DIRECT
from weir.proxy.control.stores.wire_quotas import EVERYTHING

__all__ = ["kafka_cluster"]

NOBODY = "127.0.0.1:1"
QUICKLY = (
    *("--apis", "ApiVersions,Metadata,Heartbeat"),
    *("--rounds", "1", "--percent", "100", "--for", "10"),
)
"""So that a real broker is measured in a few seconds."""
SEEN_S = 120.0


def calibrate(*options: str) -> Result:
    return CliRunner().invoke(weir, ["calibrate", *options])


def left(address: Address) -> tuple[list[str], list[str]]:
    async def main() -> tuple[list[str], list[str]]:
        quotas = await DIRECT.ask(address, EVERYTHING, DescribeClientQuotasResponse, 0, 10.0)
        topics = await DIRECT.ask(address, MetadataRequest(topics=None), MetadataResponse, 1, 10.0)
        names = [part.entity_name or "" for entry in quotas.entries or [] for part in entry.entity]
        found = [topic.name or "" for topic in topics.topics]
        return (
            [name for name in names if name.startswith("weir-calibrate-")],
            [name for name in found if name.startswith("__weir_calibrate_")],
        )

    return trio.run(main)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--upstream", NOBODY), f"{NOBODY}: connection refused"),
        ((), "no upstream: say where Kafka is with --upstream HOST:PORT, or WEIR_UPSTREAM"),
        (("--upstream", f"{NOBODY},127.0.0.1:2"), "one broker only: choose one with --upstream"),
        (("--upstream", NOBODY, "--apis", "Produce,Nonsense"), "--apis: Nonsense is none of Produce, Fetch,"),
        (("--upstream", NOBODY, "--percent", "0"), "0 is not in the range 0<x<=100"),
    ],
)
def test_calibrate_reports_wrong_options_in_one_line(options: tuple[str, ...], said: str) -> None:
    result = calibrate(*options)
    assert result.exit_code == USAGE
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_calibrate_does_not_replace_an_existing_file(tmp_path: Path) -> None:
    (tmp_path / "costs.toml").write_text("mine")
    result = calibrate("--upstream", NOBODY, "--output", str(tmp_path / "costs.toml"))
    assert result.exit_code == USAGE
    assert "is there already: choose another file, or --force" in result.stderr
    assert (tmp_path / "costs.toml").read_text() == "mine"


def test_calibrate_refuses_an_exporter_that_is_no_url() -> None:
    result = calibrate("--upstream", NOBODY, "--jmx-prometheus", "file:///etc/passwd")
    assert result.exit_code == FAILED
    assert "--jmx-prometheus is 'file:///etc/passwd', must be http://" in result.stderr


@pytest.mark.broker
@pytest.mark.alone  # it measures how long a broker's requests take
def test_calibrate_measures_a_real_broker_and_weir_loads_the_file(
    kafka_cluster: StartCluster, tmp_path: Path
) -> None:
    bootstrap = kafka_cluster("3.9.1").bootstrap
    planned = calibrate("--upstream", bootstrap, *QUICKLY, "--dry-run", "--json")
    assert planned.exit_code == DONE
    assert json.loads(planned.stdout)["plan"]["requests"] > 0
    costs = tmp_path / "costs.toml"
    done = calibrate("--upstream", bootstrap, *QUICKLY, "--output", str(costs), "--json")
    assert done.exit_code == DONE, done.stderr
    assert left(parse_address(bootstrap, "upstream")) == ([], [])
    measured = {
        (one["api"], one["coefficient"]): one["new"]
        for one in json.loads(done.stdout)["coefficients"]
        if one["measured"]
    }
    # Whatever machine this is: a request takes longer than a microsecond, and less than 50 ms.
    assert {api for api, _name in measured} == {"ApiVersions", "Metadata", "Heartbeat", "cold"}
    assert 1 < measured["Heartbeat", "us"] < 50_000
    loaded = config.load(None, {"upstream": bootstrap, "request_costs": str(costs)})
    assert loaded.request_time.costs.apis["Heartbeat"].us == pytest.approx(measured["Heartbeat", "us"])
    assert "weir calibrate on " in loaded.request_time.costs.source


@pytest.mark.broker
def test_calibrate_cleans_up_at_a_real_broker_on_sigterm(kafka_cluster: StartCluster) -> None:
    bootstrap = kafka_cluster("3.9.1").bootstrap
    address = parse_address(bootstrap, "upstream")
    command = [sys.executable, "-m", "weir.cli", "calibrate", "--upstream", bootstrap]
    command += [*QUICKLY[:2], "--percent", "1"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        assert eventually(lambda: all(left(address)) or child.poll() is not None, SEEN_S)
        assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        _stdout, stderr = child.communicate(timeout=SEEN_S)
    assert child.returncode == 128 + signal.SIGTERM, stderr
    assert left(address) == ([], [])
