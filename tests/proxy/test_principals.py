"""Principals in configuration: Kafka's form, or one line that says what is wrong."""

from __future__ import annotations

import pytest

from proxy.config import ConfigError
from proxy.principals import parse_principals


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
def test_names(text: str, names: set[str]) -> None:
    assert parse_principals(text, "admins") == names


@pytest.mark.parametrize("text", ["alice", "User:", "User:a;bob", "user:a", "Group:a", "User:a,User:b;x"])
def test_what_is_no_principal(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^super_users has '.*', must be User:NAME, several separated by ;$"
    ):
        parse_principals(text, "super_users")
