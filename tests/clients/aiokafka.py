"""aiokafka, the installed release or another one, its jobs in processes of their own."""

from __future__ import annotations

from pathlib import Path

from tests.clients.worker_admin import WorkerAdmin
from tests.clients.worker_client import WorkerClient


class Aiokafka(WorkerClient):
    """See `model.Client`. It ignores throttle times and has no metric of them: those it reports are all zero.

    Release 0.14 sends records in a format that brokers before 0.11 refuse as corrupt; 0.12 still adapts.
    """

    library = "aiokafka"
    worker = Path(__file__).with_name("aiokafka_worker.py")


class AiokafkaAdmin(WorkerAdmin, Aiokafka):
    """Its admin client."""
