"""Log lines: the table in docs/reference/log-lines.md, and the calls in `proxy/` that write them."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from weir.proxy.close_reasons import CloseReason
from weir.proxy.config.settings import Settings

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "reference" / "log-lines.md").read_text("utf-8")
VALUES: Final = frozenset({"brokers", "died", "replaced", "stuck", "zookeeper"})
"""Words in backquotes that are values of fields, if `is`, `or`, a comma or a bracket is before them."""
_KNOWN: Final = frozenset(Settings.__struct_fields__) | {each.value for each in CloseReason}
METHODS: Final = {name: name for name in ("debug", "info", "warning", "error")} | {"exception": "error"}
"""Methods of loggers, and their log levels."""
LOGGERS: Final = frozenset({"log", "audit", "self._log"})
OUTAGE_FIELDS: Final = frozenset({"failures", "lasted_s"})
TARGET_FIELDS: Final = frozenset({"node_id", "replication"})
"""Fields of `Target.log_fields`, which lines get as a dictionary."""


@dataclass(frozen=True)
class Row:
    event: str
    """The event; only its beginning if the table ends the event with `…`."""
    number: int
    """Number of the table's line, which may have several events."""
    is_beginning: bool
    levels: frozenset[str]
    fields: frozenset[str]

    def describes(self, event: str) -> bool:
        return event.startswith(self.event) if self.is_beginning else event == self.event


@dataclass(frozen=True)
class Call:
    place: str
    event: str
    level: str
    fields: frozenset[str]
    """Fields of the line; of a line with fields from dictionaries, all names that these may have."""
    keywords: frozenset[str]
    """Fields that the call names itself."""


def rows() -> list[Row]:
    table = PAGE[PAGE.index("| event | level |") :].partition("\n\n")[0]
    found = [row for number, line in enumerate(table.splitlines()[2:]) for row in _rows(number, line)]
    events = {row.event for row in found}
    return [replace(row, fields=row.fields - events) for row in found]


def _rows(number: int, line: str) -> Iterator[Row]:
    events, levels, meaning = line.strip("| ").split(" | ", maxsplit=2)
    groups = events.replace(" (`log` = `weir.audit`)", "").split("` / `")
    told = levels.split(" / ")
    if len(told) != len(groups):
        told = [levels] * len(groups)
    for group, level in zip(groups, told, strict=True):
        for event in group.split("`, `"):
            text = re.sub(r"`.*", "", event.removeprefix("`"))
            found = frozenset(re.findall(r"\b(?:debug|info|warning|error)\b", level))
            yield Row(text.rstrip("… "), number, text.endswith("…"), found, _fields(meaning))


def _fields(meaning: str) -> frozenset[str]:
    """Return the words in backquotes that are names of fields."""
    words = re.findall(r"(is|or|,|\()? ?`([a-z_]+)`", meaning)
    values = {word for before, word in words if before and word in VALUES}
    return frozenset(word for _before, word in words if word not in _KNOWN | values and word[:5] != "weir_")


@cache
def calls() -> tuple[Call, ...]:
    """Return the calls in `proxy/` that write log lines. The event is empty if only other modules know it."""
    paths = sorted((ROOT / "proxy").rglob("*.py"))
    found = tuple(call for path in paths for call in Module(path).calls())
    assert len(found) > 130
    return found


@cache
def words() -> frozenset[str]:
    return frozenset().union(*(Module(path).words for path in (ROOT / "proxy").rglob("*.py")))


class Module:
    def __init__(self, path: Path) -> None:
        self.path = path.relative_to(ROOT)
        self.nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        self.called = [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def words(self) -> frozenset[str]:
        texts = {each.value for each in self.nodes if isinstance(each, ast.Constant)}
        named = {keyword.arg for call in self.called for keyword in call.keywords}
        return frozenset(text for text in texts | named if isinstance(text, str))

    def calls(self) -> Iterator[Call]:
        for call in self.called:
            if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in LOGGERS:
                if call.func.attr in METHODS:
                    yield from self._written(call, call.args[0], METHODS[call.func.attr], [call])
            elif ast.unparse(call.func) in {"Outage", "partial"} and "Outage" in ast.unparse(call):
                given = {keyword.arg: keyword.value for keyword in call.keywords}
                failed = self._methods("failed")
                for level in _levels(given.get("level", ast.Constant("error"))):
                    yield from self._written(call, call.args[-2], level, failed, OUTAGE_FIELDS)
                yield from self._written(call, call.args[-1], "info", self._methods("over"), OUTAGE_FIELDS)

    def _methods(self, name: str) -> list[ast.Call]:
        return [
            call for call in self.called if isinstance(call.func, ast.Attribute) and call.func.attr == name
        ]

    def _written(
        self,
        call: ast.Call,
        event: ast.expr,
        level: str,
        calls: Sequence[ast.Call],
        fields: frozenset[str] = frozenset(),
    ) -> Iterator[Call]:
        """Yield the lines of an event whose fields are `fields` and the arguments of `calls`."""
        given = [keyword.arg for each in calls for keyword in each.keywords]
        keywords = fields.union(name for name in given if name is not None)
        others = self.words | TARGET_FIELDS if None in given else frozenset[str]()
        for text in self._texts(event):
            yield Call(f"{self.path}:{call.lineno}", text, level, keywords | others, keywords)

    def _texts(self, event: ast.expr) -> list[str]:
        """Return the events that an expression may stand for; empty for one that other modules know."""
        if isinstance(event, ast.Constant):
            return [str(event.value)]
        if isinstance(event, ast.IfExp):
            return [*self._texts(event.body), *self._texts(event.orelse)]
        module = importlib.import_module("weir." + ".".join(self.path.with_suffix("").parts))
        return [str(getattr(module, ast.unparse(event), ""))]


def _levels(expression: ast.expr) -> Iterator[str]:
    yield from (str(each.value) for each in ast.walk(expression) if isinstance(each, ast.Constant))
