"""Real clusters to probe."""

from tests.kafka.fixtures import kafka_cluster

__all__ = ["kafka_cluster"]
