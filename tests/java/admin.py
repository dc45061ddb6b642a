"""Java's AdminClient, of any Kafka release, as applications use it: with its own defaults.

The command-line tools are AdminClients too, but tell theirs not to wait for quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.clients.admin import Outcome
from tests.java.worker import run_java

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.clients.admin import Step


class JavaAdmin:
    """The AdminClient of Kafka `release`, which must be one that the tests have jars of."""

    def __init__(self, release: str, bootstrap: str, config: Mapping[str, str] | None = None) -> None:
        """`config` holds further settings of the AdminClient."""
        self._release = release
        self._config = {"bootstrap.servers": bootstrap} | dict(config or {})

    def run(self, *steps: Step) -> Sequence[Outcome]:
        """See `admin.Admin`. Partitions of created topics are told; errors are classes of exceptions."""
        job = {
            "config": self._config,
            "steps": [step._asdict() | {"topics": dict(step.topics)} for step in steps],
        }
        outcomes = run_java(self._release, "admin_worker", "Java's AdminClient", job)
        return [Outcome(**outcome) for outcome in outcomes]
