"""Principals in configuration: Kafka's form, or one line that says what is wrong."""

from __future__ import annotations

import pytest

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
