"""Names of Kafka's quotas of clients (org.apache.kafka.server.config.QuotaConfig)."""

from __future__ import annotations

from typing import Final

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
"""Name of the quota that brokers before 2.7 lack: they advertise CreateTopics up to v5."""
