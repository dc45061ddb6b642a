"""kafka-python, the installed release or another one, its jobs in processes of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.clients.admin import Outcome
from tests.clients.worker_client import WorkerClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clients.admin import Step

_ADMIN_S = 60.0


class KafkaPython(WorkerClient):
    """See `model.Client`. Release 3 speaks with every broker from 0.10 on, as 2.3 does.

    Releases before 3 (seen: 2.0.6 to 2.3.3) lost what was sent with acks 0 just before closing.
    """

    library = "kafka-python"
    worker = Path(__file__).with_name("kafka_python_worker.py")


class KafkaPythonAdmin(KafkaPython):
    """Its admin client. What one topic is refused for is raised for all topics of the call."""

    def __init__(self, bootstrap: str, client_id: str = "weir-tests") -> None:
        super().__init__()
        self._bootstrap = bootstrap
        self._client_id = client_id

    def run(self, *steps: Step) -> Sequence[Outcome]:
        """See `admin.Admin`. Errors are classes of exceptions."""
        calls = [step._asdict() | {"topics": dict(step.topics)} for step in steps]
        job: dict[str, Any] = {"do": "administer", "steps": calls, "timeout_s": _ADMIN_S}
        job |= {"bootstrap": self._bootstrap.split(","), "client_id": self._client_id}
        return [Outcome(**outcome) for outcome in self._run(job)["outcomes"]]
