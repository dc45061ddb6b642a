"""Real clusters for the tests of this directory."""

from tests.kafka.fixtures import fresh_cluster, kafka_cluster, topic

__all__ = ["fresh_cluster", "kafka_cluster", "topic"]
