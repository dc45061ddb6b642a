"""Make the quota registry that the configuration describes."""

from __future__ import annotations

from weir.proxy.config.config import Config
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.quotas import QuotaTable
from weir.quotas.connections import ConnectionQuotas
from weir.quotas.replication.replication_quotas import ReplicationQuotas
from weir.quotas.table.bounded_names import EMPTY
from weir.quotas.table.options import Pacing


def quota_registry(config: Config, table: QuotaTable) -> QuotaRegistry:
    """Return a quota registry with these quotas and the configured windows."""
    settings = config.settings
    return QuotaRegistry(
        table,
        settings.quota_window_num,
        settings.quota_window_size_seconds,
        in_shadow=settings.quota_mode == "shadow",
        pacing=Pacing(settings.quota_pacing),
        unnamed=EMPTY if settings.empty_client_id == "default" else "",
        request_time_scale=config.request_time.scale_of,
        connections=ConnectionQuotas(
            listener_rate=settings.max_connection_creation_rate,
            num_samples=settings.quota_window_num,
            window_s=settings.quota_window_size_seconds,
        ),
        replication=ReplicationQuotas(),
    )
