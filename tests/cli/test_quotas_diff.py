"""`weir quotas list --diff`: the changes from one quota file to another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.quotas_command import done, run
from weir.cli.exits import FAILED

OLD = """
[[quota]]
user = "alice"
producer_byte_rate = 1_000_000
consumer_byte_rate = 5

[[quota]]
user = "bob"
producer_byte_rate = 100

[[quota]]
client_id = "tool"
mode = "shadow"
producer_byte_rate = 7

[[replication]]
broker = 1
leader.replication.throttled.rate = 5

[[group]]
name = "pay"
users = ["alice", "bob"]
"""
NEW = """
[[quota]]
user = "carol"
request_percentage = 12.5

[[quota]]
user = "alice"
pacing = "smooth"
consumer_byte_rate = 5
producer_byte_rate = 2_000_000

[[quota]]
client_id = "tool"
mode = "shadow"
producer_byte_rate = 6

[[group]]
name = "pay"
users = ["alice", "svc-*"]
parent = "all-pay"

[[group]]
name = "all-pay"
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    old, new = tmp_path / "old.toml", tmp_path / "new.toml"
    old.write_text(OLD)
    new.write_text(NEW)
    return str(old), str(new)


def test_quotas_diff_tells_values_options_and_throttles_that_differ(files: tuple[str, str]) -> None:
    result = run("list", "--diff", files[0], "--quotas", files[1])
    assert result.exit_code == FAILED
    assert result.stdout.splitlines() == [
        "user alice: producer_byte_rate 1000000 (976.6 KiB/s) -> 2000000 (1.907 MiB/s)",
        "user bob: producer_byte_rate 100 -> none",
        "user carol: request_percentage none -> 12.5",
        "client-id tool (shadow): producer_byte_rate 7 -> 6",
        "user alice: no options -> smooth",
        "broker 1: leader.replication.throttled.rate 5 -> none",
        "group pay: no parent -> all-pay",
        "group all-pay: none -> no parent",
        "user bob: group pay -> none",
        "user svc-*: group none -> pay",
    ]
    assert result.stderr == "1 raised, 1 removed, 1 added, 1 lowered\n"


def test_quotas_diff_of_equal_quotas_succeeds_in_any_order_and_format(
    files: tuple[str, str], tmp_path: Path
) -> None:
    listed = tmp_path / "old.json"
    listed.write_text(done("list", "--quotas", files[0], "--json"))
    assert done("list", "--diff", str(listed), "--quotas", files[0]) == ""
