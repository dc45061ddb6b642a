"""`weir quotas import`: quotas that `weir quotas list --json` has printed are read back; new files."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.cli.quotas_command import done, failed, run
from weir.cli.exits import USAGE
from weir.cli.quotas.import_groups import group_edits
from weir.quotas import Entity, QuotaKey, QuotaTable, parse
from weir.quotas.table.group_entry import GroupEntry, regrouped

if TYPE_CHECKING:
    from weir.cli.quotas.source import StoredSource

FILE = """\
[[quota]]
user = "alice"
producer_byte_rate = 1000
request_percentage = 12.5
pacing = "smooth"
scope = "cluster"
[[quota]]
user = "<default>"
consumer_byte_rate = 9223372036854774784
[[quota]]
client_id = "app"
controller_mutation_rate = 0.5
[[quota]]
client_id = "<default>"
producer_byte_rate = 7
[[quota]]
user = "alice"
client_id = "app"
producer_byte_rate = 1
[[quota]]
user = "alice"
client_id = "<default>"
producer_byte_rate = 2
[[quota]]
user = "<default>"
client_id = "<default>"
producer_byte_rate = 3
pacing = "kafka"
[[quota]]
client_id_prefix = "etl-"
consumer_byte_rate = 4
[[quota]]
user = "alice"
client_id_prefix = "etl-"
consumer_byte_rate = 5
[[quota]]
ip = "2001:db8::1"
connection_creation_rate = 6
[[quota]]
ip = "<default>"
connection_creation_rate = 20
[[quota]]
topic = "orders"
producer_byte_rate = 8
[[quota]]
user = "alice"
mode = "shadow"
producer_byte_rate = 500
scope = "cluster"
until = 2026-12-01T07:00:00.5+01:00
"""
"""An entry of each kind of entity, in both modes, with each option."""

THROTTLES = """
[[replication]]
broker = 1
leader.replication.throttled.rate = "10MB"

[[replication]]
broker = "<default>"
follower.replication.throttled.rate = 0

[[replication]]
topic = "orders"
leader.replication.throttled.replicas = "0:1,1:2"
"""


def listed(tmp_path: Path, file: Path) -> Path:
    output = tmp_path / "quotas.json"
    output.write_text(done("list", "--quotas", str(file), "--json"))
    return output


def test_listed_quotas_of_all_kinds_are_read_back(tmp_path: Path, file: Path) -> None:
    new = tmp_path / "new.toml"
    done("import", str(listed(tmp_path, file)), "--output", str(new))
    assert parse(new.read_text()) == parse(FILE)


def test_listed_quotas_are_applied_to_a_new_file(tmp_path: Path, file: Path) -> None:
    new = tmp_path / "new.toml"
    result = run("import", str(listed(tmp_path, file)), "--apply", "--quotas", str(new))
    assert result.exit_code == 0, result.output
    assert f"created {new}" in result.stderr
    assert parse(new.read_text()) == parse(FILE)
    again = run("import", str(listed(tmp_path, file)), "--apply", "--quotas", str(new))
    assert f"nothing to change in {new}" in again.stderr


GROUPS = '[[group]]\nname = "pay"\nusers = ["bob", "svc-*"]\nclient_ids = ["app"]\n'


def test_listed_groups_are_read_back_but_not_written_into_a_quota_file(tmp_path: Path, file: Path) -> None:
    file.write_text(FILE + GROUPS + '[[quota]]\ngroup = "pay"\nproducer_byte_rate = 9\n')
    shown = done("list", "--quotas", str(file))
    assert "pay" in shown
    assert "user bob, user svc-*, client-id app" in shown
    new = tmp_path / "new.toml"
    done("import", str(listed(tmp_path, file)), "--output", str(new))
    assert parse(new.read_text()) == parse(file.read_text())
    other = tmp_path / "other.toml"
    other.write_text(FILE)
    said = failed(USAGE, "import", str(new), "--apply", "--quotas", str(other))
    assert f"{other}: not changed: write [[group]] of pay into it first" in said
    assert other.read_text() == FILE
    other.write_text(FILE + GROUPS)
    done("import", str(new), "--apply", "--quotas", str(other))
    assert parse(other.read_text()) == parse(new.read_text())


class GroupsOnly:
    """A store of groups in memory."""

    def __init__(self) -> None:
        self.table = QuotaTable({(Entity(group="<all>"), QuotaKey.PRODUCER_BYTE_RATE): 1.0})

    def alter_groups(self, groups: Sequence[GroupEntry], removed: Collection[str]) -> None:
        self.table = regrouped(self.table, groups, removed)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('[[group]]\nname = "a"\n[[group]]\nname = "b"\n', set()),
        ('[[group]]\nname = "a"\nparent = "b"\n[[group]]\nname = "b"\n', {"a", "b"}),
        ('[[group]]\nname = "a"\n[[quota]]\ngroup = "a"\nproducer_byte_rate = 9\n', {"a", "b"}),
        ('[[group]]\nname = "a"\n', {"b"}),
    ],
)
def test_imported_group_without_members_parent_part_and_quota_is_removed(text: str, left: set[str]) -> None:
    store = GroupsOnly()
    source = cast("StoredSource", store)
    first = parse('[[group]]\nname = "a"\nusers = ["u"]\n[[group]]\nname = "b"\nusers = ["v"]\n')
    group_edits(store.table, first).store(source)
    group_edits(store.table, parse(text))
    assert store.table.groups == first.groups
    group_edits(store.table, parse(text)).store(source)
    assert set(store.table.groups.parents) == left


def test_throttles_are_applied_and_shown_with_their_values_before_and_after(
    tmp_path: Path, file: Path
) -> None:
    file.write_text(THROTTLES)
    new = tmp_path / "new.toml"
    new.write_text("# ours\n[[replication]]\nbroker = 1\nleader.replication.throttled.rate = 5\n")
    command = ("import", str(file), "--apply", "--quotas", str(new))
    expected = (
        "broker 1: leader.replication.throttled.rate 5 -> 10000000\n"
        "broker <default>: follower.replication.throttled.rate none -> 0\n"
        "topic orders: leader.replication.throttled.replicas none -> 0:1,1:2\n"
    )
    assert done(*command, "--dry-run") == expected
    assert parse(new.read_text()) != parse(THROTTLES)
    assert done(*command) == expected
    assert parse(new.read_text()) == parse(THROTTLES)
    assert new.read_text().startswith("# ours\n")
    said = json.loads(done(*command, "--json"))
    assert said["replication_changes"][0] == {
        "resource": {"broker": "1"},
        "throttle": "leader.replication.throttled.rate",
        "before": "10000000",
        "after": "10000000",
    }
    assert said["replication"][1]["resource"] == {"broker": None}
    assert done(*command).splitlines()[1].endswith("follower.replication.throttled.rate 0, unchanged")


@pytest.mark.parametrize(
    ("resource", "throttles", "words"),
    [
        ({"broker": "x"}, {"leader.replication.throttled.rate": "5"}, "broker must be a node id"),
        ({"broker": "1"}, {}, "sets no throttle"),
        ({"topic": None}, {"leader.replication.throttled.replicas": "*"}, "topic has no default"),
        ({"topic": "t"}, {"leader.replication.throttled.rate": "5"}, "cannot be set for a topic"),
    ],
)
def test_import_refuses_impossible_throttles_in_json(
    tmp_path: Path, resource: dict[str, str | None], throttles: dict[str, str], words: str
) -> None:
    path = tmp_path / "quotas.json"
    path.write_text(
        json.dumps({"quotas": [], "replication": [{"resource": resource, "throttles": throttles}]})
    )
    error = failed(USAGE, "import", str(path))
    assert f"{path}: replication[0]: " in error
    assert words in error


def test_import_of_a_file_takes_pacing_and_scope_away_that_it_does_not_have(
    tmp_path: Path, file: Path
) -> None:
    plain = tmp_path / "plain.toml"
    plain.write_text('[[quota]]\nuser = "alice"\nproducer_byte_rate = 1000\nrequest_percentage = 12.5\n')
    done("import", str(plain), "--apply", "--quotas", str(file))
    assert parse(file.read_text()) == parse(FILE.replace('pacing = "smooth"\nscope = "cluster"\n', "", 1))


@pytest.mark.parametrize("source", ["--dump", None])
def test_import_replaces_an_entry_that_has_ended(tmp_path: Path, source: str | None) -> None:
    store, new, users = tmp_path / "store.toml", tmp_path / "new.toml", tmp_path / "dump/config/users"
    alice = '[[quota]]\nuser = "alice"\n'
    users.mkdir(parents=True)
    (users / "alice").write_text('{"version":1,"config":{"producer_byte_rate":"5"}}')
    new.write_text(f"{alice}producer_byte_rate = 5\n")
    store.write_text(f"{alice}consumer_byte_rate = 9\nuntil = 2001-01-01T00:00:00Z\n")
    place = (str(new),) if source is None else (source, str(tmp_path / "dump"))
    done("import", *place, "--apply", "--quotas", str(store))
    assert parse(store.read_text()) == parse(new.read_text())


RATE = {"mode": "enforce", "quotas": {"producer_byte_rate": 1}}
FLOOR, ALL = "producer_byte_floor", '[[quota]]\ngroup = "<all>"\n'


def test_import_changes_floors_and_limits_in_an_order_that_fits_or_nothing(tmp_path: Path) -> None:
    store, new = tmp_path / "store.toml", tmp_path / "new.toml"
    entries = '[[quota]]\nuser = "a"\n{} = {}\nscope = "cluster"\n{}producer_byte_rate = {}\n'
    command = ("import", str(new), "--apply", "--quotas", str(store))
    store.write_text(entries.format(FLOOR, 8, ALL, 10))
    for floor, limit in ((16, 20), (4, 5)):
        new.write_text(entries.format(FLOOR, floor, ALL, limit))
        done(*command)
        assert parse(store.read_text()) == parse(new.read_text())
    new.write_text(entries.format("consumer_byte_rate", 1, ALL, 3))
    for options in ((), ("--dry-run",)):
        assert "the floors of group <all> are 4 bytes/s, above" in failed(USAGE, *command, *options)
        assert store.read_text() == entries.format(FLOOR, 4, ALL, 5)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"quotas": [{"entity": {"user": "a"}, "mode": "off", "quotas": {}}]}, "quotas[0]: sets no quota"),
        ({"quotas": [{"entity": {"usr": "a"}, "mode": "enforce", "quotas": {}}]}, 'unknown key "usr"'),
        ({"quotas": [{"entity": {"user": "<default>"}, **RATE}]}, "quotas[0]: user is literally <default>"),
        ({"quotas": 2 * [{"entity": {"user": "a"}, **RATE}]}, "quotas[1]: user a has an entry already"),
        ({"source": "x"}, "missing required field `quotas`"),
    ],
)
def test_import_refuses_json_that_is_no_list_of_quotas(tmp_path: Path, content: Any, words: str) -> None:
    file = tmp_path / "quotas.json"
    file.write_text(json.dumps(content))
    line = failed(USAGE, "import", str(file))
    assert line.startswith(f"{file}: ")
    assert words in line


def test_quotas_set_creates_a_missing_file(tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    command = ("set", "--quotas", str(file), "--user", "alice", "producer_byte_rate=1MB")
    assert '+user = "alice"' in done(*command, "--dry-run")
    assert not file.exists()
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[0] == f"created {file}"
    assert file.read_text() == '[[quota]]\nuser = "alice"\nproducer_byte_rate = 1000000\n'
