"""Java's newest clients: transactions and share groups, with several configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.java.worker import run_java

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Read(NamedTuple):
    """Numbers of the records that were read, in the order of their arrival."""

    committed: list[int]
    """Those of transactions, read as `read_committed`."""
    shared: list[int]
    """Those of a share group with one member."""


def run(release: str, configs: Sequence[Mapping[str, str]], topic: str, records: int) -> list[Read]:
    """Send this number of records of 1 kB per configuration and kind, and read them. Raises ClientError."""
    job = {"configs": list(map(dict, configs)), "topic": topic, "records": records}
    return [Read(**each) for each in run_java(release, "newest_worker", "Java's clients", job, 500.0)]
