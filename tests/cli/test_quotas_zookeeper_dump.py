"""Dumps of znodes on disk: each documented layout, and what is no dump."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.cli.quotas.zookeeper_dump import Dump
from weir.quotas import DEFAULT, Entity, QuotaKey
from weir.quotas.table.zookeeper_layout import ZooKeeperQuotas

ALICE, ALICES_APP = Entity(user="alice"), Entity(user="alice", client_id="app")
DEFAULT_CLIENT, ODD = Entity(client_id=DEFAULT), Entity(user="CN=a b")
CONTENT = '{"version":1,"config":{"producer_byte_rate":"%d"}}'


def dumped(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def read(directory: Path) -> tuple[dict[Entity, float], list[str]]:
    quotas = ZooKeeperQuotas()
    Dump(directory).read(quotas)
    assert {key for _entity, key in quotas.values} <= {QuotaKey.PRODUCER_BYTE_RATE}
    return {entity: value for (entity, _key), value in quotas.values.items()}, list(map(str, quotas.skipped))


EXPECTED = {ALICE: 1.0, ALICES_APP: 2.0, DEFAULT_CLIENT: 3.0, ODD: 4.0}


@pytest.mark.parametrize("root", ["config", "kafka/config", "."])
@pytest.mark.parametrize(
    "names",
    [
        ("users/alice/_znode", "users/alice/clients/app", "clients/<default>", "users/CN%3Da%20b"),
        (
            "users/alice.json",
            "users/alice/clients/app.json",
            "clients/<default>.json",
            "users/CN%3Da%20b.json",
        ),
        (
            "users/alice/data",
            "users/alice/clients/app/data",
            "clients/<default>/data",
            "users/CN%3Da%20b/data",
        ),
        ("users/alice/data", "users/alice/clients/app", "clients/<default>", "users/CN%3Da%20b/_znode"),
    ],
)
def test_every_documented_layout_of_a_zookeeper_dump_is_read(
    tmp_path: Path, root: str, names: tuple[str, ...]
) -> None:
    dumped(tmp_path / root, {name: CONTENT % value for value, name in enumerate(names, start=1)})
    where = tmp_path / root if root == "." else (tmp_path / root).parent
    assert read(where) == (EXPECTED, [])


def test_unreadable_nodes_of_a_zookeeper_dump_are_listed_and_all_others_read(tmp_path: Path) -> None:
    files = {"users/alice": CONTENT % 1, "users/bob": "{", "users/carol": " " * (1 << 20) + "{}"}
    values, skipped = read(dumped(tmp_path, files))
    assert values == {ALICE: 1.0}
    assert [line.partition(":")[0] for line in skipped] == ["/config/users/bob", "/config/users/carol"]
    assert "larger than a znode" in skipped[1]
