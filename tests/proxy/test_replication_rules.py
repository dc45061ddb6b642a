"""Settings of replication listeners: the addresses that they give, and the mistakes that are reported."""

from __future__ import annotations

import pytest

from weir.proxy.addresses import Address
from weir.proxy.config import config
from weir.proxy.config.config import ConfigError
from weir.proxy.config.replication import ReplicationRules

GIVEN = {"replication_upstream": "1@kafka-1:9093,2@[::1]:9094", "replication_listen": "weir:19293"}


def rules(**options: object) -> ReplicationRules:
    return config.load(None, {"upstream": "kafka:9092", **options}).replication


def test_replication_listeners_may_have_gaps_and_begin_at_node_0() -> None:
    found = rules(replication_upstream=" 7@a:1 , 0@a:2 ", replication_listen=":19293")
    assert found.listen == {7: Address("", 19300), 0: Address("", 19293)}
    assert found.upstream == {7: Address("a", 1), 0: Address("a", 2)}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"replication_upstream": "a:1"}, "replication_upstream has 'a:1', must be ID@HOST:PORT, for"),
        ({"replication_upstream": "-1@a:1"}, "replication_upstream has '-1@a:1', must be ID@HOST:PORT"),
        ({"replication_upstream": "01@a:1"}, "replication_upstream has '01@a:1', must be ID@HOST:PORT"),
        ({"replication_upstream": "2147483648@a:1"}, "replication_upstream has '2147483648@a:1', must be"),
        ({"replication_upstream": "1@a"}, "replication_upstream of broker 1 is 'a', must be HOST:PORT, for"),
        ({"replication_upstream": "1@:1"}, "replication_upstream of broker 1 is ':1', must be HOST:PORT"),
        ({"replication_upstream": "1@a:65536"}, "replication_upstream of broker 1 is 'a:65536', its port"),
        ({"replication_upstream": "1@a:1,1@b:1"}, "replication_upstream has broker 1 twice: leave out one"),
        ({"replication_upstream": ""}, "replication_listen is set without replication_upstream: say where"),
        (
            {"replication_upstream": " , "},
            "replication_listen is set without replication_upstream: say where",
        ),
        ({"replication_listen": ""}, "replication_upstream is set without replication_listen: say where"),
        ({"replication_listen": "weir"}, "replication_listen is 'weir', must be HOST:PORT"),
        ({"replication_listen": "@weir:1"}, "replication_listen is '@weir:1', must be HOST:PORT or ID@HOST"),
        ({"replication_listen": "weir:65535"}, "replication_listen gives broker 1 port 65536, above 65535"),
        (
            {"replication_listen": "2@weir:19293"},
            "replication_upstream has broker 1, but replication_listen begins with 2@: begin",
        ),
        (
            {"replication_listen": ":19091"},
            "replication_listen gives broker 1 port 19092, which belongs to listen: choose other ports",
        ),
        (
            {"replication_listen": ":19191", "listen": ":18000", "broker_ports": "19193-19200"},
            "replication_listen gives broker 2 port 19193, which belongs to broker_ports (19193-19200)",
        ),
        (
            {"admin": "127.0.0.1:19294"},
            "replication_listen gives broker 1 port 19294, which belongs to admin: choose other ports",
        ),
        (
            {"replication_upstream": "1@weir:19294"},
            "replication_upstream has weir:19294 for broker 1, which is Weir's own address: give the address",
        ),
        (
            {"replication_upstream": "1@a:1,2@localhost:19294", "replication_listen": ":19293"},
            "replication_upstream has localhost:19294 for broker 2, which is Weir's own address: give",
        ),
        (
            {"replication_upstream": "1@a:1,2@b:1,3@a:1"},
            "replication_upstream has a:1 for brokers 1 and 3: give each its own",
        ),
        (
            {"replication_throttles": "zk"},
            "replication_throttles is 'zk', must be weir, brokers, or",
        ),
        (
            {"replication_throttles": "/kafka"},
            "replication_throttles is '/kafka', must be weir, brokers, or",
        ),
        (
            {"replication_throttles": "a:2181,b:65536/kafka"},
            "replication_throttles is 'a:2181,b:65536/kafka', must be weir, brokers, or",
        ),
        ({"super_users": "kafka"}, "super_users has 'kafka', must be User:NAME, several separated by ;"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_mistakes_in_replication_settings_are_told_in_one_line(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        rules(**{**GIVEN, **options})
    assert str(raised.value).startswith(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("key", "value"), [("replication_throttles", "brokers"), ("replication_throttles", "zk:2181/kafka")]
)
def test_settings_of_replication_throttles_need_replication_listeners(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{key} goes with replication_upstream: set that too, or leave"):
        rules(**{key: value})
    rules(**GIVEN, **{key: value})
