"""Real clusters, with Weir in front of them."""

from tests.integration.conftest import fresh_cluster, kafka_cluster, start_weir, topic

__all__ = ["fresh_cluster", "kafka_cluster", "start_weir", "topic"]
