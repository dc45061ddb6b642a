"""Expected outcomes of brokers, one file for each, and the faults of Kafka itself among them.

`python -m tests.conformance.expected` writes the files, at fresh clusters of one broker.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weir.conformance.probe.case import Result
    from weir.conformance.probe.expectations import Difference

FILES: Final = Path(__file__).parent
SEED: Final = 0
RANDOMS: Final = 3
"""Seed, and number of random requests for each API and version, with which the files were written."""


class BrokerFault(msgspec.Struct, frozen=True):
    """Outcomes that fail at a pristine broker."""

    pattern: str
    """Pattern of the names of the cases."""
    releases: tuple[str, ...]
    """Releases of Kafka that have the fault."""
    outcomes: tuple[str, ...]
    """Summaries of the outcomes (`Result.summary`); several if timing decides."""
    reason: str

    def has(self, case: str, *summaries: str | None) -> bool:
        """Return True if the case has the fault, and each summary is one of its outcomes."""
        return fnmatchcase(case, self.pattern) and set(summaries) <= set(self.outcomes)


_OLD: Final = ("0.10.2.2",)
_NULL_RECORDS: Final = "Produce/*/bytes-negative-nullable/topic_data.partition_data.records"
FAULTS: Final = (
    *(
        BrokerFault(
            pattern,
            _OLD,
            ("hung",),
            "A BufferUnderflowException in kafka.network.Processor leaves the connection open.",
        )
        for pattern in ("*/frame-empty/*", "*/header-truncated/api-key")
    ),
    *(
        BrokerFault(
            pattern,
            _OLD,
            ("hung",),
            "A BufferUnderflowException in kafka.api.ControlledShutdownRequest leaves the connection open.",
        )
        for pattern in ("ControlledShutdown/*/client-id-*", "ControlledShutdown/version-above")
    ),
    BrokerFault(
        "ControlledShutdown/version-below",
        _OLD,
        ("error 8",),
        "kafka.api.ControlledShutdownRequest executes version -1 as version 0.",
    ),
    BrokerFault(
        "ApiVersions/v0/sasl-unauthenticated-large",
        _OLD,
        ("hung",),
        "The broker waits for a request of 524,289 bytes. Other releases refuse requests above "
        "sasl.server.max.receive.size.",
    ),
    BrokerFault(
        _NULL_RECORDS,
        ("2.8.2",),
        ("closed", "error -1 3"),
        "The schema permits null records. The broker answers, and a NullPointerException in "
        "ProduceRequest.partitionSizes closes the connection.",
    ),
    BrokerFault(
        _NULL_RECORDS,
        ("3.9.1", "4.2.0", "4.4.0"),
        ("hung",),
        "The schema permits null records. Two NullPointerExceptions prevent an answer.",
    ),
)


def names() -> list[str]:
    """Return the names of brokers with expected outcomes: "kafka-3.9.1"."""
    return sorted(file.stem for file in FILES.glob("*.json"))


def with_fault(result: Result) -> Result:
    """Return a failed result with a sentence about the brokers that have the same fault."""
    found = [one for one in FAULTS if not result.passed and one.has(result.case, result.summary)]
    if not found:
        return result
    releases = ", ".join(release for one in found for release in one.releases)
    text = f"{result.message} The same fault is in Kafka {releases}: {found[-1].reason}"
    return msgspec.structs.replace(result, message=text)


def without_faults(found: Iterable[Difference], name: str) -> list[Difference]:
    """Return the differences without the known faults of this broker, whose outcomes depend on timing. `name`
    is the broker's, such as "kafka-2.8.2".
    """
    faults = [one for one in FAULTS if name.removeprefix("kafka-") in one.releases]
    return [one for one in found if not any(fault.has(one.case, one.expected, one.found) for fault in faults)]


def fault_table() -> str:
    """Return the faults as a Markdown table."""
    head = "| releases | cases | outcome | reason |\n| --- | --- | --- | --- |\n"
    return head + "".join(
        f"| {', '.join(one.releases)} | `{one.pattern}` | {', '.join(one.outcomes)} | {one.reason} |\n"
        for one in FAULTS
    )
