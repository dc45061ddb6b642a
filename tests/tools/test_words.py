"""The product and its documentation do not use the words of the first version's private language again."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.rooms import ROOMS
from tests.tools.compiled_only import ROOT
from tests.tools.words import Finding, in_markdown, in_source, in_texts

DEVELOPMENT: Final = ("bench", "tools")
"""Packages for developers. Only their texts are checked: old words in their identifiers are allowed."""
SESSIONS: Final = (
    "proxy/handlers/bandwidth/bandwidth.py",
    "proxy/control/replication/zookeeper_source.py",
    "proxy/control/zookeeper.py",
    "proxy/handlers/plan.py",
    "proxy/handlers/replication/fetched_bytes.py",
    "proxy/handlers/replication/fetched_replicas.py",
    "proxy/handlers/replication/replica_fetcher.py",
    "proxy/handlers/replication/replica_session.py",
    "proxy/handlers/request_time/request_features.py",
    "proxy/handlers/topics/fetch_sessions.py",
    "proxy/handlers/topics/topic_rates.py",
)
"""Modules about Kafka's fetch sessions (KIP-227), or about ZooKeeper's sessions. A client's TCP connection is
called a connection.
"""
_SESSION: Final = re.compile(r"(?<!fetch )\bsessions?\b", re.IGNORECASE)


def sources(packages: Iterable[str] = ROOMS) -> Iterator[tuple[str, str]]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")


def pages() -> Iterator[tuple[str, str]]:
    for path in sorted(
        [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    ):
        yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")


def said(found: list[tuple[str, Finding]]) -> str:
    return "tests/tools/words.py has the words:\n" + "\n".join(f"{path}:{finding}" for path, finding in found)


def test_the_product_benchmarks_tools_and_documentation_use_no_old_words() -> None:
    looks = ((sources(), in_source), (sources(DEVELOPMENT), in_texts), (pages(), in_markdown))
    found = [(path, finding) for texts, find in looks for path, text in texts for finding in find(text)]
    assert not found, said(found)


def test_a_session_is_a_fetch_session() -> None:
    """In comments and docstrings of the proxy; names on the wire and of metrics may contain it."""
    found = [
        f"{path}:{number}: {line.strip()}"
        for path, text in sources()
        if path.startswith("proxy/") and path not in SESSIONS
        for number, line in enumerate(text.splitlines(), 1)
        if line.lstrip().startswith(('"""', "#")) and _SESSION.search(line)
    ]
    assert not found, "\n".join(found)


def test_no_two_classes_of_the_product_have_the_same_name() -> None:
    places = defaultdict[str, list[str]](list)
    for path, text in sources():
        for name in re.findall(r"^ *class (\w+)[(:]", text, re.MULTILINE):
            places[name].append(path)
    shared = [f"{name}: {', '.join(paths)}" for name, paths in places.items() if len(paths) > 1]
    assert not shared, "say whose it is, such as UsageReport:\n" + "\n".join(shared)


def test_old_words_are_found_in_sources_and_pages() -> None:
    source = (
        'class Keeper:\n    """How many are remembered."""\n    text = "goes to whoever asks"  # as it does\n'
    )
    assert [found.text for found in in_source(source)] == ["Keeper", "How many", "as it does", "whoever"]
    assert [found.text for found in in_texts("toll = 1  # whoever\n")] == ["whoever"]
    assert [found.line for found in in_markdown("| dialect |\n```\ntoll\n```\n`toll` is none.\n")] == [1]


def test_paths_are_those_of_the_repository() -> None:
    """If the folders move, the test must not pass for lack of files."""
    packages = (*ROOMS, *DEVELOPMENT)
    assert {Path(path).parts[0] for path, _text in sources(packages)} == set(packages)
    assert {path for path, _text in pages()} >= {
        "README.md",
        "CONTRIBUTING.md",
        "docs/background/architecture.md",
    }
