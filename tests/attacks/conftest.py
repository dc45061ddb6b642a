"""Real clusters, with Weir in front of them."""

from __future__ import annotations

from tests.integration.conftest import fresh_cluster, start_weir, topic

__all__ = ["fresh_cluster", "start_weir", "topic"]
