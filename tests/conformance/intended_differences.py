"""Differences between a broker's outcomes and those of Weir in front of it that are intended.
docs/reference/probe-expectations.md has the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Final, NamedTuple

from tests.conformance.expected import MOCK, RELEASES, expected
from weir.conformance.probe.brokers import without_faults
from weir.conformance.probe.expectations import Difference

NEW: Final = ("2.8.2", "3.9.1", "4.2.0", "4.4.0")
OLD: Final = ("0.10.2.2",)


LATEST: Final = f"the outcome of Kafka {RELEASES[-1]}"
NO_CASE: Final = "no such case"
"""The broker does not have this version, so there is no expected outcome."""


class Intended(NamedTuple):
    pattern: str
    """Pattern of the names of the cases."""
    releases: Collection[str]
    """Releases of brokers at which it is seen each time; or the mock cluster's name."""
    broker: str
    """Summary of the broker's outcome."""
    weir: str
    """Summary of Weir's outcome; `LATEST` if it is the one of the newest release."""
    reason: str
    with_login: bool = False
    """True if it is seen at a listener with SASL, by a probe that logs in."""


INTENDED: Final = (
    Intended(
        "DeleteTopics/v6/string-negative-nullable/topics.name",
        ("2.8.2",),
        "error 3 29",
        "error 3 42",
        "A requested topic has neither a name nor an id. Weir answers like the newest Kafka release.",
    ),
    Intended(
        "DescribeClientQuotas/v1/array-beyond/components",
        NEW,
        "closed",
        "error 42",
        "Weir itself answers DescribeClientQuotas, and refuses long filters without decoding them.",
    ),
    Intended(
        "DescribeClientQuotas/v0/string-negative-nullable/components.match",
        ("2.8.2",),
        "error -1",
        "error 42",
        "Weir itself answers DescribeClientQuotas, and uses the errors of newer Kafka releases.",
    ),
    Intended(
        "*/frame-empty/*",
        OLD,
        "hung",
        "closed",
        "Weir closes the connection if a frame is not a request.",
    ),
    Intended(
        "*/header-truncated/api-key",
        OLD,
        "hung",
        "closed",
        "Weir closes the connection if a frame is not a request.",
    ),
    Intended(
        "ControlledShutdown/v1/client-id-*",
        OLD,
        "hung",
        "closed",
        "Weir closes the connection if the client-id is missing, or longer than the frame.",
    ),
    Intended(
        "ListGroups/version-above",
        ("0.10.2.2", "1.1.1"),
        "closed",
        "error 35",
        "With uplift, Weir offers the requested version. Without uplift, Weir answers with an error.",
    ),
    Intended(
        "ApiVersions/v[45]/*",
        ("2.8.2", "3.9.1", "4.2.0"),
        NO_CASE,
        LATEST,
        "Weir offers ApiVersions v5, which the broker lacks, and translates requests (KIP-1242).",
    ),
    Intended(
        "ApiVersions/v[45]/*",
        ("2.8.2", "3.9.1", "4.2.0"),
        NO_CASE,
        "unreadable",
        "Weir forwards malformed requests. The broker, which lacks the version, answers with error 35 "
        "in version 0.",
    ),
    Intended(
        "ApiVersions/v0/sasl-unauthenticated-large",
        OLD,
        "hung",
        "closed",
        "Like newer Kafka releases, Weir refuses long requests from clients that have not logged in.",
        with_login=True,
    ),
    Intended(
        "Produce/*/no-acks",
        (MOCK,),
        "answer",
        "closed",
        "Weir closes the connection if a broker responds to a request with acks=0.",
    ),
)


def unintended(found: Iterable[Difference], release: str) -> list[Difference]:
    """Return the differences between Weir's outcomes and the expected ones of the broker that no row of
    `INTENDED` explains.
    """
    stable = without_faults(found, release)
    return [one for one in stable if not any(_explains(row, one, release) for row in INTENDED)]


def missing(found: Collection[Difference], release: str, *, with_login: bool = False) -> list[Intended]:
    """Return the intended differences that should have been seen at this release, and were not.
    `with_login`: of a probe that logs in.
    """
    rows = (row for row in INTENDED if release in row.releases and row.with_login == with_login)
    return [row for row in rows if not any(_explains(row, one, release) for one in found)]


def intended_table() -> str:
    head = "| cases | behind Weir | broker | Weir | reason |\n| --- | --- | --- | --- | --- |\n"
    return head + "".join(
        f"| `{row.pattern}` | {_releases(row.releases)} | {row.broker} | {row.weir} | {row.reason} |\n"
        for row in INTENDED
    )


@cache
def _latest() -> Mapping[str, str]:
    return expected(RELEASES[-1])


def _releases(releases: Collection[str]) -> str:
    return "all" if set(releases) == set(RELEASES) else ", ".join(releases)


def _explains(row: Intended, found: Difference, release: str) -> bool:
    return (
        release in row.releases
        and fnmatchcase(found.case, row.pattern)
        and (found.expected or NO_CASE) == row.broker
        and found.found == (_latest().get(found.case) if row.weir == LATEST else row.weir)
    )
