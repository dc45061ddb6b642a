"""Find the mutations that a module allows, and draw a random sample. The operators are those of
cosmic-ray.
"""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from cosmic_ray.ast import ast_nodes, get_ast  # first: cosmic_ray.plugins alone imports parso in a circle
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Position: TypeAlias = tuple[int, int]
"""Position in a source: (line from 1, column from 0)."""
Span: TypeAlias = tuple[Position, Position]

NAMED: Final = ("VariableReplacer", "VariableInserter")
"""Endings of the names of operators that need a variable's name, and are not used."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one module."""

    path: str
    """Path of the module relative to the root of the tree."""
    line: int
    operator: str
    occurrence: int
    """Number of the place among all places in the module that the operator can change."""

    def __str__(self) -> str:
        """Return the place and the operator as text."""
        return f"{self.path}:{self.line} {self.operator.partition('/')[2]}"


def mutations_of(path: str, source: str) -> dict[Span, list[Mutation]]:
    """Return every mutation of a module, by the span of source that it changes."""
    nodes, skipped = list(ast_nodes(get_ast(source))), list(_skipped(ast.parse(source)))
    found: dict[Span, list[Mutation]] = {}
    for name in operator_names():
        if name.endswith(NAMED):
            continue
        operator = get_operator(name)()
        spans = (span for node in nodes for span in operator.mutation_positions(node))
        for occurrence, (start, end) in enumerate(spans):
            if not any(first <= start < last for first, last in skipped):
                found.setdefault((start, end), []).append(Mutation(path, start[0], name, occurrence))
    return found


def sample(sources: Mapping[str, str], count: int, seed: int) -> list[Mutation]:
    """Choose at most `count` mutations: choose places in the modules at random, then one mutation of each
    place.

    Therefore operators with many variants are not chosen more often than others.
    """
    places = [found for path in sorted(sources) for found in mutations_of(path, sources[path]).values()]
    random = Random(seed)  # noqa: S311 - a sample, no secret
    return [random.choice(found) for found in random.sample(places, min(count, len(places)))]


def mutated(source: str, mutation: Mutation) -> str:
    """Return the source of the module with this mutation."""
    changed: str | None = mutate_code(source, get_operator(mutation.operator)(), mutation.occurrence)
    assert changed is not None, f"{mutation} is of another source"
    return changed


def difference(source: str, changed: str) -> str:
    """Return the lines that differ, as in a diff without context."""
    lines = difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=0)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def _skipped(tree: ast.Module) -> Iterator[Span]:
    """Yield the spans that no test can or need check: annotations, signatures, assertions of invariants,
    `TYPE_CHECKING`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield _span(node)
        elif isinstance(node, ast.AnnAssign):
            yield _span(node.annotation)
            if isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias" and node.value:
                yield _span(node.value)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield _span(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _signature(node)


def _signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Span]:
    """Yield the spans of a function's head, without the defaults of its arguments."""
    arguments = function.args
    defaults = [default for default in (*arguments.defaults, *arguments.kw_defaults) if default is not None]
    spans = [_span(default) for default in defaults]
    head = (function.lineno, function.col_offset), _span(function.body[0])[0]
    edges = [head[0], *(edge for span in spans for edge in span), head[1]]
    for number, (start, end) in enumerate(pairwise(edges)):
        if number % 2 == 0:
            yield start, end


def _span(node: ast.expr | ast.stmt) -> Span:
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return (node.lineno, node.col_offset), (end_line, end_column)
