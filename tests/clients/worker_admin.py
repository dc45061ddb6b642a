"""The admin client of a Python library, its calls in a process of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.clients.admin import Outcome
from tests.clients.worker_client import WorkerClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clients.admin import Step

_ADMIN_S = 60.0


class WorkerAdmin(WorkerClient):
    """See `admin.Admin`. A subclass also has a client of `WorkerClient`, whose worker knows `administer`."""

    def __init__(self, bootstrap: str, client_id: str = "weir-tests", release: str | None = None) -> None:
        super().__init__(release)
        self._bootstrap = bootstrap
        self._client_id = client_id

    def run(self, *steps: Step) -> Sequence[Outcome]:
        """See `admin.Admin`. Errors are classes of exceptions."""
        calls = [step._asdict() | {"topics": dict(step.topics)} for step in steps]
        job: dict[str, Any] = {"do": "administer", "steps": calls, "timeout_s": _ADMIN_S}
        job |= {"bootstrap": self._bootstrap.split(","), "client_id": self._client_id}
        return [Outcome(**outcome) for outcome in self._run(job)["outcomes"]]
