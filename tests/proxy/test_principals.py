"""Principals in configuration: Kafka's form, or one line that says what is wrong."""

from __future__ import annotations

import pytest

from weir.proxy.config import config
from weir.proxy.config.config import ConfigError
from weir.proxy.config.principals import parse_principals


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", set()),
        (" ; ", set()),
        ("User:admin", {"admin"}),
        ("User:a;User:b;", {"a", "b"}),
        (" User:a ; User:a", {"a"}),
        ("User:CN=kafka-1,O=weir", {"CN=kafka-1,O=weir"}),
        ("User:User:odd", {"User:odd"}),
    ],
)
def test_principals_of_a_setting_are_parsed(text: str, names: set[str]) -> None:
    assert parse_principals(text, "quota_admins") == names


@pytest.mark.parametrize("text", ["alice", "User:", "User:a;bob", "user:a", "Group:a", "User:a;x,User:b"])
def test_malformed_principals_are_refused(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^super_users has '.*', must be User:NAME, several separated by ;$"
    ):
        parse_principals(text, "super_users")


@pytest.mark.parametrize("text", ["User:a,User:b", "User:CN=a,O=b, User:c"])
def test_principals_separated_by_commas_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^quota_admins has '.*' as one name: separate principals by ;"):
        parse_principals(text, "quota_admins")


@pytest.mark.parametrize(
    ("options", "brokers"),
    [
        ({}, set()),
        ({"super_users": "User:kafka"}, set()),
        ({"super_users": "User:kafka;User:ANONYMOUS", "inter_broker": True}, {"kafka", "ANONYMOUS"}),
    ],
)
def test_super_users_are_brokers_only_on_inter_broker_listeners(
    options: dict[str, object], brokers: set[str]
) -> None:
    assert config.load(None, {"upstream": "kafka:9092", **options}).brokers == brokers


def test_an_inter_broker_listener_needs_super_users() -> None:
    with pytest.raises(ConfigError, match=r"^inter_broker is set, but super_users names nobody: say who"):
        config.load(None, {"upstream": "kafka:9092", "inter_broker": True})
