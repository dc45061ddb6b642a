"""The keys of the configuration by subject."""

from __future__ import annotations

from typing import Final

SECTIONS: Final = {
    "Where it listens, and where brokers are": (
        "upstream",
        "listen",
        "advertised_host",
        "broker_ports",
        "admin",
        "admin_token_file",
        "admin_tls_cert",
        "state_dir",
        "takeover_socket",
        "refresh_s",
        "proxy_protocol_from",
        "workers",
    ),
    "Quotas": (
        "quotas",
        "quota_admins",
        "quota_mode",
        "quota_pacing",
        "old_read_age_s",
        "empty_client_id",
        "quota_window_num",
        "quota_window_size_seconds",
        "request_costs",
        "request_time_scale",
        "uplift",
    ),
    "Who clients are": (
        "sasl_oauthbearer_sub_claim_name",
        "unreadable_principal",
        "ssl_principal_mapping_rules",
    ),
    "Replication between brokers": (
        "replication_upstream",
        "replication_listen",
        "super_users",
        "replication_throttles",
    ),
    "TLS towards clients": ("tls_cert", "tls_client_auth", "tls_client_ca", "sni_domain"),
    "Towards brokers": (
        "upstream_tls",
        "upstream_cert",
        "upstream_verify_host",
        "upstream_sasl_mechanism",
        "upstream_sasl_username",
        "upstream_sasl_password_file",
        "upstream_sasl_token_url",
        "upstream_sasl_scope",
        "upstream_sasl_extensions",
    ),
    "Limits": (
        "connections_max",
        "max_connection_creation_rate",
        "max_connections_per_ip",
        "frame_bytes_max",
        "buffered_bytes_max",
        "throttle_ms_max",
        "drain_timeout_s",
        "connection_age_max_s",
        "login_timeout_s",
    ),
    "Several Weirs": ("usage_share_topic", "share_key_file"),
    "Usage records": (
        "usage",
        "usage_interval_ms",
        "usage_keep_bytes",
        "usage_trace_share",
    ),
    "Logs and events": ("log_level", "events_topic"),
}
"""Keys by the heading under which docs/reference/configuration.md and `weir config --new` list them."""


ESSENTIAL: Final = frozenset(
    {
        "upstream",
        "listen",
        "advertised_host",
        "broker_ports",
        "admin",
        "admin_token_file",
        "quotas",
        "quota_mode",
        "quota_admins",
        "tls_cert",
        "upstream_tls",
        "usage",
        "log_level",
    }
)
"""Keys that `weir config --new` writes without `--all`."""
