"""Which releases of client libraries are tried with which brokers."""

from __future__ import annotations

from tests.clients import Aiokafka, Client, KafkaPython, Librdkafka

VERSIONS = ["0.10.2.2", "3.9.1", "4.2.0", "4.4.0"]
LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA = Librdkafka(), KafkaPython(), Aiokafka()
PAIRS: list[tuple[Client, str]] = [
    *((LIBRDKAFKA, version) for version in VERSIONS),
    *((KAFKA_PYTHON, version) for version in VERSIONS),
    *((KafkaPython("2.3.3"), version) for version in VERSIONS[:2]),
    *((Aiokafka("0.12.0"), version) for version in VERSIONS[:2]),
    *((AIOKAFKA, version) for version in VERSIONS[1:]),
]
"""Which client is tried with which broker; see docs/reference/compatibility.md."""
