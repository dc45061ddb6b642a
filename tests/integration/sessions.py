"""Sessions of real clients: topics, records in every codec, a group, throttles, and transactions.

Each library has the same session, with its own admin client; Java's is that of Kafka's tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from tempfile import NamedTemporaryFile
from typing import Any, Final, NamedTuple

from tests.clients import Aiokafka, Client, KafkaPython, Librdkafka
from tests.clients.admin import Admin, Step
from tests.clients.aiokafka import AiokafkaAdmin
from tests.clients.exchange import part, some_messages
from tests.clients.kafka_python import KafkaPythonAdmin
from tests.clients.librdkafka_admin import LibrdkafkaAdmin
from tests.java.admin import JavaAdmin
from tests.java.kafka_tools import KafkaTools
from tests.java.records import Exchange, JavaRecords
from tests.java.tools_process import run_tool
from tests.kafka import Cluster
from tests.kafka.jars import version_tuple
from tests.kafka.waiting import eventually

Session = Callable[["Cluster", str, str], None]

THROTTLED: Final = "throttled"
"""Client-id with quotas that the sessions exceed."""
QUOTAS: Final = f"""
[[quota]]
client_id = "{THROTTLED}"
producer_byte_rate = 200_000
consumer_byte_rate = 200_000
controller_mutation_rate = 2
pacing = "smooth"

[[quota]]
client_id = "<default>"
producer_byte_rate = 1_000_000_000
consumer_byte_rate = 1_000_000_000
"""
CODECS: Final = {"none": (0,), "gzip": (0,), "snappy": (0,), "lz4": (0,), "zstd": (2, 1)}
"""Compressions, and the first release of brokers that have them."""
TRANSACTIONS: Final = (0, 11)
GROWABLE: Final = (1, 0)
COMPRESSIBLE: Final = [b"%06d" % number * 40 for number in range(200)]
LARGE: Final = some_messages(20, 20_000)
NEWEST: Final = "4.4.0"
OLD_AIOKAFKA: Final = "0.12.0"
"""Later releases send old brokers a record format that these refuse."""
BOOTSTRAPPED: Final = (2, 2)
"""First release of kafka-topics that talks to brokers."""
TOPIC_COMMAND: Final = "org.apache.kafka.tools.TopicCommand"
TOOL_S: Final = 120.0
PATIENCE_S: Final = 30.0
JAVA_RECORDS: Final = 1000
TRIES: Final = 3
NEW_GROUPS: Final = (4, 0)
"""First release of brokers that have groups of KIP-848 without being asked to."""
JAVA_THROTTLED: Final = {
    "client.id": THROTTLED,
    "batch.size": "20000",
    "max.partition.fetch.bytes": "45000",
    "max.in.flight.requests.per.connection": "1",  # a request sent before a throttled response may come late
}
REFUSED: Final = ("ThrottlingQuotaExceededError", "ThrottlingQuotaExceededException", "NodeNotReadyError")
"""Errors of clients under the mutation quota; kafka-python raises the last one while it waits."""
MANY: Final = 26
"""Partitions that exceed the mutation quota and its burst."""


def codecs(version: str) -> list[str]:
    return [codec for codec, first in CODECS.items() if version_tuple(version) >= first]


class Names(NamedTuple):
    compression: str
    transactional_id: str
    idempotence: Mapping[str, Any]
    small_requests: Mapping[str, Any]
    """Of a producer: many requests, so that a throttle in a response concerns the next one."""
    small_responses: Mapping[str, Any]
    """Of a consumer, likewise."""
    new_groups: Mapping[str, Any] = {}
    """Of a consumer, for groups of KIP-848; empty if the library lacks them."""


PYTHON: Final = ("compression_type", "transactional_id", {"enable_idempotence": True})


def librdkafka(cluster: Cluster, bootstrap: str, topic: str) -> None:
    names = Names(
        "compression.type",
        "transactional.id",
        {"enable.idempotence": True},
        {"batch.size": 20_000, "max.in.flight": 1},
        {"max.partition.fetch.bytes": 45_000},
        {"group.protocol": "consumer"},
    )
    _session(cluster.version, bootstrap, topic, Librdkafka(), LibrdkafkaAdmin, names)


def kafka_python(cluster: Cluster, bootstrap: str, topic: str) -> None:
    names = Names(*PYTHON, {"batch_size": 20_000}, {"max_partition_fetch_bytes": 45_000})
    _session(cluster.version, bootstrap, topic, KafkaPython(codecs=True), KafkaPythonAdmin, names)


def aiokafka(cluster: Cluster, bootstrap: str, topic: str) -> None:
    """The session of aiokafka: of an older release for brokers before 0.11."""
    release = None if version_tuple(cluster.version) >= TRANSACTIONS else OLD_AIOKAFKA
    names = Names(*PYTHON, {"max_batch_size": 20_000}, {"max_partition_fetch_bytes": 45_000})

    def admin(bootstrap: str, client_id: str) -> Admin:
        return AiokafkaAdmin(bootstrap, client_id, release)

    _session(cluster.version, bootstrap, topic, Aiokafka(release, codecs=True), admin, names)


def _session(
    version: str, bootstrap: str, topic: str, client: Client, admin: Callable[[str, str], Admin], names: Names
) -> None:
    with part("topics"):
        topics = [f"{topic}-{name}" for name in (*codecs(version), "throttled", "transactions")]
        _administer(admin(bootstrap, "admin"), version, topics)
    with client.running() as running:
        for codec in codecs(version):
            with part(codec):
                config = {names.compression: codec} if codec != "none" else {}
                running.produce(bootstrap, f"{topic}-{codec}", COMPRESSIBLE, config=config)
                _consume_in_group(running, bootstrap, f"{topic}-{codec}", {})
        if version_tuple(version) >= NEW_GROUPS and names.new_groups:
            with part("group of KIP-848"):
                _consume_in_group(running, bootstrap, f"{topic}-none", names.new_groups)
        with part("throttled"):
            _throttled(running, bootstrap, f"{topic}-throttled", names)
        if version_tuple(version) >= TRANSACTIONS:
            with part("transactions"):
                _transactions(running, bootstrap, f"{topic}-transactions", names)
    with part("mutations"):
        _mutate(admin(bootstrap, THROTTLED), version, f"{topic}-many")
        _delete(admin(bootstrap, "admin"), topics)


def _consume_in_group(client: Client, bootstrap: str, topic: str, config: Mapping[str, Any]) -> None:
    group = "-".join((topic, *config.values()))
    seen = client.consume(bootstrap, topic, len(COMPRESSIBLE), group=group, config=config)
    assert seen.values == COMPRESSIBLE


def _administer(admin: Admin, version: str, topics: list[str]) -> None:
    (created,) = admin.run(Step("create", dict.fromkeys(topics, 1)))
    assert set(created.errors.values()) <= {""}, created
    described = eventually(
        lambda: set(admin.run(Step("describe", dict.fromkeys(topics, 1)))[0].errors.values()) == {""},
        PATIENCE_S,
    )
    assert described
    if version_tuple(version) >= GROWABLE:
        (grown,) = admin.run(Step("grow", {topics[-1]: 2}))
        assert set(grown.errors.values()) <= {""}, grown


def _mutate(admin: Admin, version: str, topic: str) -> None:
    steps = [Step("create", {topic: MANY})]
    if version_tuple(version) >= GROWABLE:
        steps.append(Step("grow", {topic: MANY + 1}))
    for outcome in admin.run(*steps, Step("describe", {topic: 1})):
        assert set(outcome.errors.values()) <= {"", *REFUSED}, outcome


def _delete(admin: Admin, topics: list[str]) -> None:
    (deleted,) = admin.run(Step("delete", dict.fromkeys(topics, 1)))
    assert set(deleted.errors.values()) <= {""}, deleted


def _throttled(client: Client, bootstrap: str, topic: str, names: Names) -> None:
    client.produce(bootstrap, topic, LARGE, client_id=THROTTLED, config=names.small_requests)
    seen = client.consume(bootstrap, topic, len(LARGE), client_id=THROTTLED, config=names.small_responses)
    assert seen.values == LARGE


def _transactions(client: Client, bootstrap: str, topic: str, names: Names) -> None:
    client.produce(bootstrap, topic, COMPRESSIBLE, partition=0, config=names.idempotence)
    for _ in range(2):
        client.produce(bootstrap, topic, COMPRESSIBLE, partition=0, config={names.transactional_id: topic})


def java(cluster: Cluster, bootstrap: str, topic: str) -> None:
    """The session of Kafka's tools of the broker's release, and of the newest AdminClient."""
    version, tools = version_tuple(cluster.version), KafkaTools(cluster, bootstrap)
    many = f"{topic}-many"
    with part("topics"):
        for name in (topic, f"{topic}-throttled"):
            _java_topics(cluster.version, bootstrap, tools, name)
    with part("records"):
        for codec in codecs(cluster.version):
            config = {"compression.type": codec, "enable.idempotence": "false"}
            config = config if version >= TRANSACTIONS else {"compression.type": codec}
            assert tools.produce(topic, JAVA_RECORDS, 100, config=config) == JAVA_RECORDS
        assert tools.produce(topic, JAVA_RECORDS, 100, config={"acks": "1"}) == JAVA_RECORDS
    with part("group"):
        count = JAVA_RECORDS * (len(codecs(cluster.version)) + 1)
        _consume_by_tool(tools, topic, count)
    if version >= NEW_GROUPS:
        with part("group of KIP-848"), NamedTemporaryFile("w", suffix=".properties") as file:
            file.write("group.protocol=consumer\n")
            file.flush()
            assert tools.consume(topic, count, f"{topic}-848", "--consumer.config", file.name) == count
    with part("throttled"):
        exchange = Exchange(f"{topic}-throttled", LARGE, JAVA_THROTTLED)
        assert JavaRecords(cluster.version, bootstrap).run(exchange) == [LARGE]
    if version >= TRANSACTIONS:
        with part("transactions"):
            options = ("--transactional-id", topic, "--transaction-duration-ms", "50")
            assert tools.produce(topic, JAVA_RECORDS, 100, *options) == JAVA_RECORDS
            idempotent = {"enable.idempotence": "true"}
            assert tools.produce(topic, JAVA_RECORDS, 100, config=idempotent) == JAVA_RECORDS
    with part("mutations"):
        admin = JavaAdmin(NEWEST, bootstrap, {"client.id": THROTTLED})
        _mutate(admin, cluster.version, many)
        _delete(JavaAdmin(NEWEST, bootstrap), [topic, f"{topic}-throttled", many])


def _consume_by_tool(tools: KafkaTools, topic: str, count: int) -> None:
    """In the group that is named as the topic. The perf test of 0.10.2.2 gives up after a second."""
    seen = tools.consume(topic, count, topic)
    for _ in range(TRIES):
        if seen < count:
            seen += tools.consume(topic, count - seen, topic)
    assert seen == count
    assert sum(current for current, _end in tools.offsets(topic, topic).values()) == count


def _java_topics(version: str, bootstrap: str, tools: KafkaTools, topic: str) -> None:
    """kafka-topics before 2.2 asks ZooKeeper. The newest takes its place, which cannot describe at 0.10."""
    create = ("--create", "--topic", topic, "--partitions", "1", "--replication-factor", "1")
    if version_tuple(version) >= BOOTSTRAPPED:
        tools.topics(*create)
        assert eventually(lambda: set(tools.partitions(topic)) == {0}, PATIENCE_S)
        return
    calls = [create, ("--list",)]
    if version_tuple(version) >= TRANSACTIONS:
        calls.append(("--describe", "--topic", topic))
    for arguments in calls:
        said = run_tool(NEWEST, TOPIC_COMMAND, ("--bootstrap-server", bootstrap, *arguments), TOOL_S)
        assert said.status == 0, said


SESSIONS: Final[dict[str, Session]] = {
    "java": java,
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}
