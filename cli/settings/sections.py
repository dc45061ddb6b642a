"""Divide the help of `weir run` and `weir check` by subject, because their options are all keys of the
configuration, too many for one list.
"""

from __future__ import annotations

from typing import Final

import click

SECTIONS: Final = {
    "Where it listens, and where brokers are": (
        "config_file",
        "upstream",
        "listen",
        "advertised_host",
        "broker_ports",
        "first_node_id",
        "admin",
        "admin_token_file",
        "admin_tls_cert",
        "admin_tls_key",
        "admin_tls_client_ca",
        "admin_public_metrics",
        "admin_base_path",
        "state_dir",
        "takeover_socket",
        "refresh_s",
        "connect_timeout_s",
        "proxy_protocol_from",
        "workers",
    ),
    "Quotas": (
        "quotas",
        "quota_store",
        "quota_topic",
        "quota_admins",
        "quota_mode",
        "quota_pacing",
        "empty_client_id",
        "quota_window_num",
        "quota_window_size_seconds",
        "controller_quota_window_num",
        "controller_quota_window_size_seconds",
        "request_costs",
        "request_time_scale",
        "auto_creation",
        "uplift",
    ),
    "Who clients are": (
        "sasl_oauthbearer_sub_claim_name",
        "gssapi_principal",
        "delegation_token_principal",
        "unreadable_principal",
        "ssl_principal_mapping_rules",
    ),
    "Replication between brokers": (
        "replication_upstream",
        "replication_listen",
        "super_users",
        "replication_throttles",
        "replication_zookeeper",
    ),
    "TLS towards clients": ("tls_cert", "tls_key", "tls_client_auth", "tls_client_ca", "sni_domain"),
    "Towards brokers": (
        "upstream_tls",
        "upstream_ca",
        "upstream_cert",
        "upstream_key",
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
        "listener_max_connection_creation_rate",
        "max_connections_per_ip",
        "max_connections_per_ip_overrides",
        "frame_bytes_max",
        "buffered_bytes_max",
        "throttle_ms_max",
        "first_request_hold_ms_max",
        "drain_timeout_s",
        "connection_age_max_s",
        "connection_idle_max_s",
        "login_timeout_s",
    ),
    "Several Weirs": (
        "usage_share_topic",
        "share_usage",
        "share_on_loss",
        "share_key_file",
        "share_weirs_max",
    ),
    "Usage records": (
        "usage_dir",
        "usage_topic",
        "usage_interval_ms",
        "usage_compression",
        "usage_keep_bytes",
        "usage_entities_max",
        "usage_trace_share",
    ),
    "Logs, output, help": ("log_level", "log_format", "events_topic", "as_json", "help", "help_all"),
}
"""Names of parameters of `weir run` and `weir check`, by the heading under which help and
docs/reference/configuration.md list them.
"""


ESSENTIAL: Final = frozenset(
    {
        "config_file",
        "upstream",
        "listen",
        "advertised_host",
        "broker_ports",
        "first_node_id",
        "admin",
        "admin_token_file",
        "quotas",
        "quota_mode",
        "quota_admins",
        "tls_cert",
        "upstream_tls",
        "usage_dir",
        "log_level",
        "as_json",
        "help",
        "help_all",
    }
)
"""Parameters that `--help` lists; `--help-all` lists all of them."""
ENVIRONMENT_HELP: Final = (
    "Each option can be an environment variable: WEIR_BROKER_PORTS is --broker-ports. An option overrides "
    "the variable, the variable overrides the configuration file."
)
_WHOLE: Final = "weir.cli.settings.sections.whole"
"""Key in the `meta` dictionary of click's context. Its value is True if the help is to list all options."""


class SectionedCommand(click.Command):
    """A command whose help lists its options under the headings of `SECTIONS`: with `--help` those that most
    people need, with `--help-all` all.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's parameters and `--help-all`; click calls this method."""
        return [*super().get_params(ctx), _HELP_ALL]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options into the help text, grouped by heading; click calls this method."""
        whole = ctx.meta.get(_WHOLE, False)
        named = {_name(parameter): parameter for parameter in self.get_params(ctx)}
        records = {
            name: record
            for name, parameter in named.items()
            if (whole or name in ESSENTIAL) and (record := parameter.get_help_record(ctx)) is not None
        }
        for heading, names in SECTIONS.items():
            if listed := [records[name] for name in names if name in records]:
                with formatter.section(heading):
                    formatter.write_dl(listed)
        formatter.write_paragraph()
        formatter.write_text(ENVIRONMENT_HELP)


def _name(parameter: click.Parameter) -> str:
    """Return the parameter's name in `SECTIONS`; click's own name for `--help` changes with its releases."""
    return "help" if "--help" in parameter.opts else str(parameter.name)


def _show_all(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_WHOLE] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_ALL: Final = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show this message with all options and exit.",
)
