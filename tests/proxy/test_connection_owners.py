"""Who writes the state of a connection: at most two modules write any field."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from weir import proxy

PROXY: Final = Path(proxy.__file__).parent
NAMES: Final[Mapping[str, frozenset[str]]] = {
    "Connection": frozenset({"connection", "context"}),
    "Client": frozenset({"client"}),
    "RequestInFlight": frozenset({"record"}),
    "Effects": frozenset({"effects"}),
    "End": frozenset({"client_end", "broker_end", "side", "_client", "_broker"}),
}
"""The classes, and what variables and attributes that hold one of their objects are called."""
EXEMPT: Final = {("Connection", "now_ms"), ("End", "rest_bytes")}
"""Each event sets the time; each half of a connection sets the rest of its own end."""


def written(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (class, field) for each assignment to a field of the classes above."""
    own = {
        node: parent.name
        for parent in ast.walk(tree)
        if isinstance(parent, ast.ClassDef) and parent.name in NAMES
        for node in ast.walk(parent)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            holder = ast.unparse(node.value).split(".")[-1].split("[")[0]
            if holder == "self" and node in own:
                yield own[node], node.attr
            yield from ((name, node.attr) for name, called in NAMES.items() if holder in called)


def writers(sources: Mapping[str, str]) -> Mapping[tuple[str, str], set[str]]:
    """Return the modules that write each (class, field)."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for module, source in sources.items():
        for field in written(ast.parse(source)):
            found[field].add(module)
    return found


def test_no_field_of_a_connection_is_written_by_more_than_two_modules() -> None:
    sources = {str(path.relative_to(PROXY)): path.read_text() for path in PROXY.rglob("*.py")}
    found = writers(sources)
    assert len(found) > 60
    assert {field for field, modules in found.items() if len(modules) > 2} <= EXEMPT


def test_a_third_module_that_writes_a_field_is_found() -> None:
    sources = {
        "one": "class Client:\n def f(self):\n  self.user = 1",
        "two": "caller.client.user = 2",
        "three": "client.user += 3",
    }
    assert writers(sources) == {("Client", "user"): {"one", "two", "three"}}
