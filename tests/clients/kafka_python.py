"""kafka-python, the installed release or another one, its jobs in processes of their own."""

from __future__ import annotations

from pathlib import Path

from tests.clients.worker_admin import WorkerAdmin
from tests.clients.worker_client import WorkerClient


class KafkaPython(WorkerClient):
    """See `model.Client`. Release 3 speaks with every broker from 0.10 on, as 2.3 does.

    Releases before 3 (seen: 2.0.6 to 2.3.3) lost what was sent with acks 0 just before closing.
    """

    library = "kafka-python"
    worker = Path(__file__).with_name("kafka_python_worker.py")


class KafkaPythonAdmin(WorkerAdmin, KafkaPython):
    """Its admin client. What one topic is refused for is raised for all topics of the call."""
