"""Find the old private words and constructions in Python sources and Markdown pages."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import Final, NamedTuple

OLD_IDENTIFIERS: Final = {
    "ALONE": "FORWARD_SERIAL",
    "Admission": "Decision",
    "Arrival": "a pending connection",
    "Caller": "Context",
    "Denial": "Rejection",
    "Dialect": "BrokerVersions",
    "Entered": "AcceptedClient",
    "Entrance": "TlsAcceptor",
    "Errand": "BrokerQuery",
    "Establisher": "Connector",
    "Gate": "ConnectionLimiter",
    "Keeper": "QuotaManager",
    "Management": "QuotaAdmin",
    "Meter": "ByteCounter",
    "MissingTopics": "PendingCreations",
    "NOBODY": "a ledger without limits",
    "Neutraliser": "EndpointMask",
    "PASS": "FORWARD",
    "Payers": "ClientLedger",
    "Place": "FieldOffset",
    "Places": "AdvertisedListeners",
    "Precedent": "the parse cache",
    "QuotaBook": "QuotaRegistry",
    "Receipt": "UsageCounters",
    "Skimmer": "PausingScanner",
    "Slate": "PendingCounters",
    "StoreState": "StoreHealth",
    "Tab": "LocalResponse",
    "Traced": "RequestTrace",
    "UNPAID": "a ledger without limits",
    "Unmanaged": "NoQuotaAdmin",
    "UsageBook": "UsageRegistry",
    "UsageBooks": "UsageRegistries",
    "attention": "needs_update",
    "book": "a registry, or an address book",
    "books": "registries",
    "came": "created",
    "denial": "rejection",
    "dialect": "broker_versions",
    "entrance": "tls_acceptor",
    "errand": "query",
    "gate": "connection_limiter",
    "greeted": "first request seen",
    "inquiries": "topic_queries",
    "keeper": "quota_manager",
    "management": "quota_admin",
    "meter": "byte_counter",
    "missing_topics": "pending_creations",
    "places": "listeners, or field offsets",
    "postpone": "hold",
    "postponed": "held",
    "skim": "scan",
    "take_over": "inherit",
    "toll": "request cost",
    "vouched": "authorized",
    "walk": "scan",
}
"""Old name → what to write. Leading underscores do not matter."""

PROSE: Final = {
    r"\bwhoever\b": "name the person or thing",
    r"\bas (it|they) (does|do)\b": "say what is done",
    r"\bas it came\b": "unchanged",
    r"\bso (much|many)\b": "say how much, or 'this much'",
    r"\bof which\b": "begin a new sentence, with the thing as its subject",
    r"\bof whom\b": "begin a new sentence, with the person as its subject",
    r"\bthere (is|are|was|were) none\b": "say what is missing",
    r"\bgoes? on as\b": "say what happens",
    r"\btoll(s|ed)?\b": "request cost",
    r"\berrands?\b": "query",
    r"\binquir(y|ies)\b": "query",
    r"\bkeepers?\b": "quota manager",
    r"\bprecedents?\b": "parse cache",
    r"\bpostpon\w*": "hold",
    r"\bneutralis\w*": "mask",
    r"\bdialects?\b": "broker versions",
    r"\bvouch\w*": "authorize",
    r"\bestablishers?\b": "connector",
    r"\bskim(s|med|ming|mer)?\b": "scan",
    r"\breceipts?\b": "usage counters",
    r"\b(the|a) crowd\b": "overflow entity",
    r"\b(usage|quota) books?\b": "registry",
}
"""Pattern (of any case) → what to write."""

DOCSTRING: Final = {
    r"Whether\b": "True if ..., or Return True if ...",
    r"How (many|much)\b": "Number of ...",
    r"How (long|often|far|late|soon)\b": "Time (s) ..., Number of times ...",
    r"(Who|Whom|Whose|Whoever)\b": "name the person or thing",
    r"How(?! (many|much|long|often|far|late|soon)\b)\b": "say the action, or the type of fact",
    r"(What|When|Where)\b": "name the thing: Return ..., True if ..., Time (ms) ...",
    r"Which (is|are|was|were|has|have|it|they|becomes|goes|comes|a|an|the)\b": "name the thing",
    r"(Its?|They|Those|These)\b": "name the thing",
    r"Raises [A-Z]\w*((, | or |, or )[A-Z]\w*)*\.\s*\Z": "say what the function does, then what it raises",
    r"Of (a|an|all|any|each|every|one|the|these|those|that|them|both)\b": "Number of ..., Size of ...",
    r"As (it|they) (does|do)\b": "say what is done",
    r"So (much|many)\b": "Number of ...",
    r"Nobody\b": "name the thing",
}
"""Pattern at the beginning of a docstring, of a field above all → what to write."""


class Finding(NamedTuple):
    line: int
    text: str
    instead: str

    def __str__(self) -> str:
        return f"{self.line}: {self.text!r}: write {self.instead}"


def in_source(source: str) -> list[Finding]:
    """Return the findings in a Python module: identifiers, docstrings, comments, sentences in strings."""
    nodes = list(ast.walk(ast.parse(source)))
    return sorted({*_identifiers(nodes), *_texts(source, nodes)})


def in_texts(source: str) -> list[Finding]:
    """Return the findings in a module's docstrings, comments and sentences in strings; ignore identifiers."""
    return _texts(source, list(ast.walk(ast.parse(source))))


def _texts(source: str, nodes: list[ast.AST]) -> list[Finding]:
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    found = list(_comments(source))
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in docstrings:
                found += _beginning(node.value, node.lineno)
            if id(node) in docstrings or node.value.count(" ") >= 2:
                found += _prose(node.value, node.lineno)
    return sorted(set(found))


def in_markdown(text: str) -> list[Finding]:
    return _prose(_FENCED.sub(lambda code: "\n" * code[0].count("\n"), text), 1)


_FENCED: Final = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`[^`\n]*`")
_PROSE: Final = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in PROSE.items()]
_ANY_PROSE: Final = re.compile("|".join(PROSE), re.IGNORECASE)
"""Decides for most texts in one search, where each pattern alone would take a search."""
_DOCSTRING: Final = [(re.compile(pattern), instead) for pattern, instead in DOCSTRING.items()]


def _identifiers(nodes: list[ast.AST]) -> Iterator[Finding]:
    for node in nodes:
        for field in ("id", "attr", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str) and (instead := OLD_IDENTIFIERS.get(name.strip("_"))) is not None:
                yield Finding(getattr(node, "lineno", 0), name, instead)


def _comments(source: str) -> Iterator[Finding]:
    lines = (line for line in source.splitlines() if "#" in line)
    if not any(map(_ANY_PROSE.search, lines)):  # Python's tokenizer takes longer than all else here
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _prose(token.string, token.start[0])


def _beginning(text: str, line: int) -> Iterator[Finding]:
    for pattern, instead in _DOCSTRING:
        if found := pattern.match(text.lstrip()):
            yield Finding(line, found[0], instead)


def _prose(text: str, line: int) -> list[Finding]:
    text = _CODE.sub("", text)
    if not _ANY_PROSE.search(text):
        return []
    return [
        Finding(line + text.count("\n", 0, match.start()), match[0], instead)
        for pattern, instead in _PROSE
        for match in pattern.finditer(text)
    ]
