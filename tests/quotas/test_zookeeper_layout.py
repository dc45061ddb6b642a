"""Znodes of quotas: what they say by Kafka's layout is imported, what cannot be is listed with its path.

Layout and names are written here by hand, from KIP-55, KIP-124, KIP-612 and `/config` of a real 2.8.2 cluster
(tests/integration/test_import.py compares with that one).
"""

from __future__ import annotations

import json
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable
from weir.quotas.table.entities import Default, Name
from weir.quotas.table.names import canonical_ip
from weir.quotas.table.zookeeper_layout import ZooKeeperQuotas

PRODUCE, FETCH, MUTATE = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
)


def node(**config: object) -> bytes:
    return json.dumps({"version": 1, "config": config}).encode()


def found(path: str, content: bytes | None) -> dict[tuple[Entity, QuotaKey], float]:
    quotas = ZooKeeperQuotas([(path, content)])
    assert quotas.skipped == []
    return quotas.values


def refused(path: str, content: bytes | None) -> str:
    """The one line that says why a node, or what it holds, is left out."""
    quotas = ZooKeeperQuotas([(path, content)])
    assert quotas.values == {}
    (line,) = map(str, quotas.skipped)
    assert line.startswith(f"{path}: ")
    return line.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("path", "entity"),
    [
        ("/config/users/alice", Entity(user="alice")),
        ("/config/users/%3Cdefault%3E/clients/a", None),
        ("/config/users/<default>", Entity(user=DEFAULT)),
        ("/config/users/alice/clients/app", Entity(user="alice", client_id="app")),
        ("/config/users/alice/clients/<default>", Entity(user="alice", client_id=DEFAULT)),
        ("/config/users/<default>/clients/app", Entity(user=DEFAULT, client_id="app")),
        ("/config/users/<default>/clients/<default>", Entity(user=DEFAULT, client_id=DEFAULT)),
        ("/config/clients/app", Entity(client_id="app")),
        ("/config/clients/<default>", Entity(client_id=DEFAULT)),
        ("/config/users/CN%3Da%2CO%3Db%20c", Entity(user="CN=a,O=b c")),
        ("/config/users/%7E%2A%C3%BC", Entity(user="~*ü")),
        ("/config/clients/a%2Fb", Entity(client_id="a/b")),
        ("/config/clients/a+b%3d", Entity(client_id="a b=")),
    ],
)
def test_znode_paths_name_their_entities(path: str, entity: Entity | None) -> None:
    content = node(producer_byte_rate="1024")
    if entity is None:
        assert "cannot be told from the default" in refused(path, content)
    else:
        assert found(path, content) == {(entity, PRODUCE): 1024.0}


def test_znodes_of_every_quota_key_and_number_format_are_imported() -> None:
    alice, largest = Entity(user="alice"), "9223372036854775807"
    written = node(producer_byte_rate=" 1024 ", consumer_byte_rate=2048, controller_mutation_rate="5.50")
    values = {(alice, PRODUCE): 1024.0, (alice, FETCH): 2048.0, (alice, MUTATE): 5.5}
    assert found("/config/users/alice", written) == values
    assert found("/config/users/alice", node(producer_byte_rate=largest)) == {(alice, PRODUCE): 2.0**63}


@pytest.mark.parametrize(
    ("name", "ip"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("<default>", DEFAULT),
        ("::1", "::1"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("2001%3Adb8%3A%3A1", "2001:db8::1"),
    ],
)
def test_znodes_of_ip_addresses_are_imported(name: str, ip: Name) -> None:
    values = found(f"/config/ips/{name}", node(connection_creation_rate="10"))
    assert values == {(Entity(ip=ip), QuotaKey.CONNECTION_CREATION_RATE): 10.0}


@pytest.mark.parametrize("content", [None, b"", b'{"version":1,"config":{}}', b'{"version":1}'])
def test_znodes_without_quotas_are_ignored(content: bytes | None) -> None:
    assert found("/config/users/alice", content) == {}


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        ("/config/users/alice", b"{", "cannot be read: Input data was truncated"),
        ("/config/users/alice", b"[1]", "cannot be read: Expected `object`, got `array`"),
        ("/config/users/alice", b'{"config": 3}', "cannot be read: Expected `object`, got `int`"),
        ("/config/users/alice", b'{"config": {"\xff": "1"}}', "cannot be read: "),
        (
            "/config/users/alice",
            b'{"config":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
            "nested too deeply",
        ),
        ("/config/users/alice", node(producer_byte_rate="many"), "producer_byte_rate: 'many' is no number"),
        ("/config/users/alice", node(producer_byte_rate="1_000"), "producer_byte_rate: '1_000' is no number"),
        ("/config/users/alice", node(producer_byte_rate="nan"), "producer_byte_rate: 'nan' is no number"),
        ("/config/users/alice", node(producer_byte_rate=["1"]), "producer_byte_rate: neither a number nor"),
        ("/config/users/alice", node(producer_byte_rate="0"), "must be a finite number above 0"),
        ("/config/users/alice", node(producer_byte_rate="-1"), "must be a finite number above 0"),
        ("/config/users/alice", node(controller_mutation_rate="1e999"), "must be a finite number above 0"),
        ("/config/users/alice", node(consumer_byte_rate=10**400), "consumer_byte_rate: "),
        ("/config/users/alice", node(consumer_byte_rate="1.5"), "it must be a whole number of bytes/s"),
        ("/config/users/alice", node(bytes="1"), "bytes: no quota that Weir knows"),
        ("/config/users/alice", node(connection_creation_rate="1"), "no quota of users and client-ids"),
        ("/config/ips/10.0.0.1", node(producer_byte_rate="1"), "no quota of an ip"),
        ("/config/ips/::1", node(connection_creation_rate="2147483648"), "from 1 to 2147483647"),
        ("/config/ips/kafka-client.example", node(connection_creation_rate="1"), "no IP address"),
        ("/config/users/", node(), "its name is empty"),
        ("/config/users/100%", node(), "its name is not percent-encoded: "),
        ("/config/clients/%FF", node(), "its name is not percent-encoded UTF-8"),
        ("/config/users/a%3db", node(), "brokers ignore this node: they encode this user as a%3Db"),
        ("/config/users/alice/brokers/1", node(), "no node of a user, a client-id or an ip"),
        ("/config/topics/alice", node(), "no node of a user, a client-id or an ip"),
    ],
)
def test_znodes_that_cannot_be_imported_are_listed_with_a_reason(
    path: str, content: bytes, words: str
) -> None:
    assert words in refused(path, content)


@pytest.mark.parametrize(
    ("written", "percent"),
    [("50", 50.0), ("200.0", 200.0), ("0.5", 0.5), ("2.147483647E9", 2147483647.0), ("4.9E-324", 5e-324)],
)
def test_percentages_of_request_time_are_imported_as_java_writes_them(written: str, percent: float) -> None:
    content = node(request_percentage=written, producer_byte_rate="7")
    app = Entity(client_id="app")
    quotas = ZooKeeperQuotas([("/config/clients/app", content)])
    assert quotas.skipped == []
    assert quotas.table == QuotaTable({(app, PRODUCE): 7.0, (app, QuotaKey.REQUEST_PERCENTAGE): percent})


@pytest.mark.parametrize("written", ["0", "-1", "NaN", "Infinity", "1E300"])
def test_a_znodes_invalid_percentage_is_listed_and_its_other_quotas_imported(written: str) -> None:
    path = "/config/clients/app"
    quotas = ZooKeeperQuotas([(path, node(request_percentage=written, producer_byte_rate="7"))])
    assert [(line.where, line.key) for line in quotas.skipped] == [(path, "request_percentage")]
    assert quotas.table == QuotaTable({(Entity(client_id="app"), PRODUCE): 7.0})


def test_a_second_znode_of_one_entity_is_listed_as_skipped() -> None:
    quotas = ZooKeeperQuotas(
        [
            ("/config/clients/a%3Db", node(producer_byte_rate="1")),
            ("/config/clients/a%3db", node(producer_byte_rate="2")),
        ]
    )
    assert quotas.values == {(Entity(client_id="a=b"), PRODUCE): 1.0}
    assert [line.reason for line in quotas.skipped] == ["there is one for client-id a=b already"]


def test_scram_credentials_in_znodes_are_counted_and_never_shown() -> None:
    scram = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"
    config = {"SCRAM-SHA-256": scram, "SCRAM-SHA-512": scram, "producer_byte_rate": "1024"}
    nodes = [
        ("/config/users/alice", node(**config)),
        ("/config/users/bob", node(**config | {"producer_byte_rate": [scram]})),
        ("/config/users/carol", node(**config)[:-3]),
    ]
    quotas = ZooKeeperQuotas(nodes)
    assert quotas.values == {(Entity(user="alice"), PRODUCE): 1024.0}
    assert quotas.credentials == 4, "the third node cannot be read"
    assert len(quotas.skipped) == 2
    assert not any("key=" in str(line) or "SCRAM" in str(line) for line in quotas.skipped)


NAMES = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda name: name != "<default>")
PARTS: st.SearchStrategy[Name] = st.just(DEFAULT) | NAMES
ENTITIES = st.builds(Entity, user=PARTS, client_id=PARTS | st.none()) | st.builds(Entity, client_id=PARTS)
VALUES = st.one_of(
    st.tuples(st.sampled_from([PRODUCE, FETCH]), st.integers(1, 2**53).map(float)),
    st.tuples(st.just(MUTATE), st.floats(0.001, 2.0**62)),
)


def written(name: Name) -> str:
    """`Sanitizer.sanitize`: a form's encoding, two of its characters changed."""
    if isinstance(name, Default):
        return "<default>"
    return quote_plus(name, safe="").replace("~", "%7E").replace("+", "%20").replace("*", "%2A")


def path_of(entity: Entity) -> str:
    if entity.ip is not None:
        return f"/config/ips/{entity.ip.value if isinstance(entity.ip, Default) else entity.ip}"
    client_id = "" if entity.client_id is None else f"/clients/{written(name_of(entity.client_id))}"
    return f"/config/users/{written(entity.user)}{client_id}" if entity.user else f"/config{client_id}"


def name_of(part: object) -> Name:
    assert isinstance(part, str | Default)
    return part


RATES = st.dictionaries(ENTITIES, st.lists(VALUES, max_size=3).map(dict), max_size=5)
IPS = st.just(DEFAULT) | st.ip_addresses().map(lambda ip: canonical_ip(str(ip)))
CONNECTION_RATES = st.dictionaries(
    st.builds(Entity, ip=IPS),
    st.fixed_dictionaries({QuotaKey.CONNECTION_CREATION_RATE: st.integers(1, 2**31 - 1).map(float)}),
    max_size=3,
)


@given(RATES, CONNECTION_RATES)
def test_a_quota_table_written_as_znodes_is_imported_unchanged(
    rates: dict[Entity, dict[QuotaKey, float]], connection_rates: dict[Entity, dict[QuotaKey, float]]
) -> None:
    drawn = rates | connection_rates
    nodes = {
        path_of(entity): node(
            **{
                key.value: str(int(value)) if value.is_integer() else repr(value)
                for key, value in values.items()
            }
        )
        for entity, values in drawn.items()
    }
    quotas = ZooKeeperQuotas(nodes.items())
    assert quotas.skipped == []
    assert quotas.table == QuotaTable(
        {(entity, key): value for entity, values in drawn.items() for key, value in values.items()}
    )


KEYS = st.sampled_from([*(key.value for key in QuotaKey), "SCRAM-SHA-512", "other"])
PATHS = st.builds(
    "/config/{}/{}{}".format,
    st.sampled_from(["users", "clients", "ips", "topics"]),
    st.text(max_size=5),
    st.sampled_from(["", "/", "/clients/app", "/clients/%"]),
)
JSON: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
CONTENTS = st.binary(max_size=20) | st.dictionaries(KEYS, JSON).map(lambda config: node(**config))


@given(PATHS | st.text(), CONTENTS)
def test_any_znode_content_is_imported_or_listed(path: str, content: bytes) -> None:
    quotas = ZooKeeperQuotas([(path, content)])
    assert quotas.nodes == 1
    assert all(isinstance(str(line), str) for line in quotas.skipped)
