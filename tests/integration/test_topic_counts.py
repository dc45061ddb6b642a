"""Limits on what exists with a prefix, beside a broker whose CreateTopicPolicy counts (KIP-108)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.integration.conftest import StartWeir
from tests.integration.mutable import await_partitions
from tests.integration.traffic import until
from tests.integration.weir import Weir
from tests.integration.weir_log import entries
from tests.kafka import jars
from tests.kafka.fixtures import StartCluster
from tests.kafka.settings import HOST
from tests.mutations.client import ask_once
from tests.mutations.requests import Create, Delete, Topic
from tests.raw import Address, ask
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import MetadataRequest, MetadataResponse

pytestmark = [pytest.mark.broker]

SOURCE: Final = Path(__file__).parents[1] / "java" / "CountPolicy.java"
POLICY: Final = {"create.topic.policy.class.name": "CountPolicy"}
LIMIT: Final = '[[quota]]\ntopic_prefix = "weir."\ntopics_max = 2\n'
CREATE: Final = {"1.1.1": 2, "3.9.1": 7, "4.4.0": 7}
METADATA: Final = {"1.1.1": 5, "3.9.1": 12, "4.4.0": 12}


@pytest.fixture(params=CREATE)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def classes(version: str, tmp_path: Path) -> str:
    """The directory of the compiled policy."""
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("no javac")
    path = ":".join(map(str, jars.classpath(version)))
    command = [javac, "--release", "8", "-nowarn", "-cp", path, "-d", str(tmp_path), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return str(tmp_path)


def test_topics_above_a_limit_get_the_codes_of_a_broker_with_a_policy(
    fresh_cluster: StartCluster, start_weir: StartWeir, version: str, classes: str
) -> None:
    """One broker: its policy limits the prefix `policy.`, Weir in front of it the prefix `weir.`."""
    cluster = fresh_cluster(version, settings=POLICY, classes=classes)
    weir = start_weir(cluster.bootstrap, LIMIT, options=("--set", "workers=2"))
    broker, proxy = (HOST, next(iter(cluster.ports.values()))), (HOST, weir.port + 1)

    def create(address: Address, prefix: str, *, validate_only: bool, **topics: Topic) -> dict[str, int]:
        named = [_named(topic, f"{prefix}{name}") for name, topic in topics.items()]
        request = Create(tuple(named), CREATE[version], validate_only)
        results = ask_once(address, "app", request).results
        assert all(one.error_message for one in results if one.error_code == ErrorCode.POLICY_VIOLATION)
        return {(one.name or "").removeprefix(prefix): one.error_code for one in results}

    def both(*, validate_only: bool = False, **topics: Topic) -> dict[str, int]:
        at_broker = create(broker, "policy.", validate_only=validate_only, **topics)
        at_weir = create(proxy, "weir.", validate_only=validate_only, **topics)
        assert at_weir == at_broker
        return at_weir

    one = Topic("")
    assert both(a=one) == {"a": ErrorCode.NONE}
    assert both(b=one) == {"b": ErrorCode.NONE}
    await_partitions(cluster, {"weir.a": 1, "weir.b": 1})
    mixed = {
        "a": one,
        "c": Topic("", 3),
        "d": Topic("", 0),
        "e": Topic("", replicas=99),
        "f": Topic("", configs={"no.such": "thing"}),
        "x/y": one,
        "g": Topic("", assignments=[[cluster.controller()]]),
    }
    for validate_only in (False, True):
        codes = both(validate_only=validate_only, **mixed)
        assert (codes["c"], codes["g"], codes["a"]) == (ErrorCode.POLICY_VIOLATION,) * 2 + (
            ErrorCode.TOPIC_ALREADY_EXISTS,
        )
    full = {"topics_max of topic prefix weir. is reached: 2 of 2."}
    until(lambda: complaints(weir) >= full, lambda: f"Weir warns: {weir.log}")
    _limits_hold_on_every_way(proxy, broker, version)
    assert complaints(weir) == full


def complaints(weir: Weir) -> set[object]:
    return {entry.get("what") for entry in entries(weir.log) if entry["level"] in {"warning", "error"}}


def _limits_hold_on_every_way(proxy: Address, broker: Address, version: str) -> None:
    """Automatic creation leaves topics unknown, a deletion makes room at once, creations past Weir count."""
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("weir.auto", "free")]
    told = ask(proxy, MetadataRequest(topics=wanted), MetadataResponse, METADATA[version])
    codes = {each.name: each.error_code for each in told.topics}
    assert codes["weir.auto"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    deletion = ask_once(proxy, "app", Delete(("weir.a",), 1))
    assert deletion.error_codes == (ErrorCode.NONE,)
    assert _create(proxy, "weir.h", version) == ErrorCode.NONE
    assert _create(proxy, "weir.i", version) == ErrorCode.POLICY_VIOLATION
    assert ask_once(proxy, "app", Delete(("weir.h",), 1)).error_codes == (ErrorCode.NONE,)
    assert _create(broker, "weir.past", version) == ErrorCode.NONE
    codes_now = [_create(proxy, f"weir.{letter}", version) for letter in "jkl"]
    assert codes_now.count(ErrorCode.NONE) <= 1
    assert codes_now[2] == ErrorCode.POLICY_VIOLATION


def _create(address: Address, name: str, version: str) -> int:
    (code,) = ask_once(address, "app", Create((Topic(name),), CREATE[version])).error_codes
    return code


def _named(topic: Topic, name: str) -> Topic:
    return Topic(name, topic.partitions, topic.replicas, topic.configs, topic.assignments)
