"""Names that look like something else: in the quota file, its snapshot, the quota topic, and metrics."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from weir.proxy.admin.exposition import WEIR, render
from weir.proxy.control.stores.file import rewrite
from weir.proxy.control.stores.records import EntityMode, read_key, write
from weir.quotas import DEFAULT, Entity, QuotaKey, parse
from weir.quotas.table.entities import Prefix

PRODUCE: Final = QuotaKey.PRODUCER_BYTE_RATE
NAMES: Final = (
    'a\n[[quota]]\nuser = "admin"\nproducer_byte_rate = 1',
    'a"]\n[[quota]]',
    '"""\n[[quota]]\n"""',
    "'''\n[[quota]]\n'''",
    "[[quota]]",
    "# a comment",
    'user = "admin"',
    '{"user":"admin"}',
    "null",
    " <default>",
    "\\",
    "\\u0022",
    "a\r\nb",
    "\x00",
    "\x7f\x85\u2028\u202e\ufeff",
    "\x1b[2J",
    "\U0001f600",
    '"} 1\nweir_up 0',
    "a" * 32_767,
)
OPERATORS: Final = """\
# The operator's own.

[[quota]]   # it looks like two
user = \"\"\"
[[quota]]
client_id = "not mine"
\"\"\"
producer_byte_rate = 1_000

[[quota]]
client_id = '[[quota]]x'
producer_byte_rate = 5   # stays
"""


def entities() -> list[Entity]:
    found = [Entity(user=name) for name in NAMES] + [Entity(client_id=name) for name in NAMES]
    found += [Entity(user=name, client_id=DEFAULT) for name in NAMES]
    return [*found, *(Entity(client_id=Prefix(name)) for name in NAMES), *(Entity(topic=n) for n in NAMES)]


def test_hostile_names_change_only_their_entries_of_a_quota_file(tmp_path: Path) -> None:
    path = tmp_path / "quotas.toml"
    path.write_text(OPERATORS)
    table = before = parse(OPERATORS)
    assert len(table) == 2
    found = entities()
    for start in range(0, len(found), 19):
        changes = {(entity, PRODUCE): 7.0 for entity in found[start : start + 19]}
        assert rewrite(path, changes).table == (table := table.altered(changes))
    assert path.read_text().startswith(OPERATORS)
    random.Random(6).shuffle(found)
    for start in range(0, len(found), 20):
        gone = {(entity, PRODUCE): None for entity in found[start : start + 20]}
        assert rewrite(path, gone).table == (table := table.altered(gone))
    assert table == before
    assert path.read_text() == OPERATORS


@pytest.mark.parametrize("shadow", [True, False])
def test_a_quota_topic_record_of_a_hostile_name_is_one_line(shadow: bool) -> None:
    keys = {write(EntityMode(entity, shadow), {PRODUCE: 7.0}).key: entity for entity in entities()}
    assert len(keys) == len(entities())
    for key, entity in keys.items():
        assert read_key(key) == EntityMode(entity, shadow)
        assert b"\n" not in key


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_hostile_names_are_escaped_in_metric_labels(accept: str) -> None:
    rows = [((name[:200],), 1.0) for name in NAMES]
    families = iter([WEIR.gauge("test", "Named.", rows, "user")])
    text, _type = trio.run(render, families, accept)
    ours = text.decode().partition("# HELP process_")[0]
    assert ours.count("weir_test{") == len(NAMES)
    (found,) = text_string_to_metric_families(ours.removesuffix("# EOF\n"))
    assert [sample.labels["user"] for sample in found.samples] == [name[:200] for name in NAMES]
