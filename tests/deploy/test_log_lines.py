"""Log lines are strict JSON, and are what docs/reference/log-lines.md documents."""

from __future__ import annotations

import json
import math
import re
from itertools import cycle
from pathlib import Path
from typing import Final, Never

import pytest
import structlog
import trio

from tests.deploy.log_lines import ROOT, calls, rows, words
from tests.quotas.changes import put_in_force
from weir.proxy import logs
from weir.proxy.control.events.levels import UsageLevels
from weir.proxy.control.events.throttle_log import NAMED_MAX, REMIND_MS, ThrottleLog
from weir.proxy.control.peers import local_peers
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.scan import Scan
from weir.quotas import DEFAULT, Entity, MutationBudget, Prefix, QuotaKey, QuotaTable, Tags

RESERVED: Final = frozenset({"event", "exception", "level", "log", "stack", "timestamp"})
"""Fields that the logger sets, so no call may have them."""
HOSTILE: Final = (math.inf, math.nan, -math.inf, [{"rate": math.nan}], "\udcff\x1b[2J", b"\xff", Path("/x"))
"""Values that JSON cannot express, or that need escapes."""
ROWS: Final = rows()
OPERATIONS: Final = (ROOT / "docs" / "how-to" / "operations.md").read_text("utf-8")


def strict(line: str) -> dict[str, object]:
    """Return a log line as a JSON object. Raises ValueError for NaN and Infinity, which are not JSON."""

    def refuse(constant: str) -> Never:
        raise ValueError(f"{constant} is not JSON: {line}")

    found: dict[str, object] = json.loads(line, parse_constant=refuse)
    return found


def write_quota_lines(registry: QuotaRegistry, *, shadow: bool) -> None:
    """Have the log write each kind of line about throttled entities and levels of usage."""
    scan = Scan(registry)
    throttles = ThrottleLog(scan, local_peers(list, registry), lambda _event: None, shadow=shadow)
    usage = UsageLevels(scan, lambda _event: None, shadow=shadow)
    ledger = registry.of(1).mutation_ledger("alice", "app", 0)
    mutations = ledger and (ledger.shadow if shadow else ledger.enforced)
    assert isinstance(mutations, MutationBudget)
    mutations.charge(100, 0)
    for now_ms in (0, REMIND_MS):
        for number in range(NAMED_MAX):
            ledgers = registry.of(1).ledger("alice", f"client-{number}", now_ms)
            budget = (ledgers.shadow or ledgers).produce
            assert budget
            budget.charge(20_000, now_ms)
        for _step in usage.look(now_ms):
            pass
        trio.run(throttles.look, now_ms)
    put_in_force(registry, QuotaTable())
    trio.run(throttles.look, 10 * REMIND_MS)


@pytest.mark.parametrize("shadow", [False, True], ids=["enforced", "shadow"])
def test_lines_about_quotas_have_the_fields_of_the_table_in_the_operations_page(
    shadow: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("info", "json")
    entries = {(Entity(client_id=DEFAULT), QuotaKey.PRODUCER_BYTE_RATE): 1000.0}
    entries[Entity("alice", Prefix("app")), QuotaKey.CONTROLLER_MUTATION_RATE] = 1.0
    registry = QuotaRegistry(QuotaTable(entries), in_shadow=shadow)
    write_quota_lines(registry, shadow=shadow)
    lines = [strict(line) for line in capsys.readouterr().err.splitlines()]
    kinds = {str(line["event"]).removeprefix("shadow ") for line in lines}
    throttling = {f"throttling {what}" for what in ("begins", "goes on", "ended", "of others")}
    assert kinds == {*throttling, "quota usage"}
    assert {line["level"] for line in lines} == {"info"}
    told = frozenset[str]().union(*lines) - {"event", "level", "timestamp", "entities"}
    table = OPERATIONS[OPERATIONS.index("| field | meaning |") :].partition("\n\n")[0]
    documented = {
        field for row in table.splitlines()[2:] for field in re.findall(r"`(\w+)`", row.split(" | ")[0])
    }
    assert documented - told == set(Tags._fields) - {"user", "client_id", "client_id_prefix"}
    assert told <= documented


def test_every_log_line_is_documented_with_its_level() -> None:
    for call in calls():
        described = [row for row in ROWS if row.describes(call.event)]
        assert described or not call.event, f"{call.place}: {call.event} is not documented"
        for row in described:
            assert call.level in row.levels, f"{call.place}: {call.event} is documented as {row.levels}"


def test_every_documented_log_line_is_written_with_the_documented_fields() -> None:
    fields = dict[int, frozenset[str]]()
    for row in ROWS:
        of = [call for call in calls() if row.describes(call.event)]
        assert of or row.event in words(), f"no log line begins with {row.event}"
        assert not of or row.levels == {call.level for call in of}, row.event
        written = (call.fields for call in of) if of else [words()]
        fields[row.number] = fields.get(row.number, frozenset()).union(*written)
    for row in ROWS:
        missing = row.fields - fields[row.number]
        assert not missing, f"{row.event}: no field {missing}"


def test_no_log_line_names_a_field_that_the_logger_sets() -> None:
    for call in calls():
        assert not call.keywords & RESERVED, f"{call.place}: {call.event}"


def test_documented_log_lines_are_strict_json_with_their_level_and_fields(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("debug", "json")
    for row in ROWS:
        for level in row.levels:
            fields = dict(zip(sorted(row.fields), cycle(HOSTILE), strict=False))
            getattr(structlog.get_logger(), level)(row.event, **fields)
            line = strict(capsys.readouterr().err)
            assert line.keys() == {"event", "level", "timestamp"} | row.fields, row.event
            assert (line["event"], line["level"]) == (row.event, level)
