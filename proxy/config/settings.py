"""The keys of the configuration: types, bounds, defaults and descriptions. `config` reads and checks them.

A capability may need more than the values of its settings, such as a parsed list or the content of a file. It
then has a function that makes an object of checked rules from `Settings`; `config` calls that function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec

from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT

ABOVE_0: Final = msgspec.Meta(gt=0)
AT_LEAST_0: Final = msgspec.Meta(ge=0)
SAMPLES_MAX: Final = 10_000
"""Maximum number of samples: each limiter keeps as many numbers."""
SAMPLE_S: Final = msgspec.Meta(ge=1, le=86_400)
WAIT_MS: Final = msgspec.Meta(ge=0, le=2**31 - 1)
"""Allowed values of settings that are throttle times (ms): the range of the field in Kafka's protocol."""
INTERVAL_MS: Final = msgspec.Meta(ge=100, le=3_600_000)
SHARE: Final = msgspec.Meta(ge=0, le=1)


class ConfigError(Exception):
    """Weir cannot start with this configuration, or in these surroundings. The text is one line that says
    what to do.
    """


class ConfigMistakesError(ConfigError):
    """Raised for several mistakes at once. The text is one line: the first mistake, and the number of the
    others.
    """

    def __init__(self, mistakes: Sequence[str]) -> None:
        others = f" (and {len(mistakes) - 1} more: weir check lists all)" if len(mistakes) > 1 else ""
        super().__init__(mistakes[0] + others)
        self.mistakes = tuple(mistakes)


def store_of(quotas: str) -> Literal["file", "topic", "broker"]:
    """Return the kind of store that a value of `quotas` names."""
    match quotas.partition(":")[0]:
        case "topic":
            return "topic"
        case "broker":
            return "broker"
    return "file"


def _key(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description)


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The keys of the configuration file; the options of `weir run` are derived from them."""

    upstream: Annotated[str, _key("Kafka's bootstrap brokers, HOST:PORT[,HOST:PORT...].")] = ""
    listen: Annotated[
        str,
        _key("Bootstrap address for clients, HOST:PORT. An empty host means all interfaces, IPv4 and IPv6."),
    ] = "127.0.0.1:19092"
    quotas: Annotated[
        str,
        _key(
            "Source of quotas: a TOML file; topic:NAME, a compacted topic; topic, the topic __weir_quotas; "
            "or broker, the brokers' own quotas. Empty: no quotas."
        ),
    ] = ""
    advertised_host: Annotated[
        str,
        _key("Host name of all brokers for clients. Empty: the address that a client connects to."),
    ] = ""
    broker_ports: Annotated[
        str,
        _key(
            "Port ranges, FIRST-LAST[@NODE_ID][,...]: broker NODE_ID gets port FIRST, broker NODE_ID + 1 "
            "gets port FIRST + 1, and so on. Empty: the 100 ports after the port of listen."
        ),
    ] = ""
    admin: Annotated[
        str, _key("Address of the admin endpoint (metrics, health, API), HOST:PORT. Empty: no endpoint.")
    ] = ""
    admin_token_file: Annotated[
        str,
        _key("File with the token (at least 16 characters) of the admin endpoint; reloaded when changed."),
    ] = ""
    admin_tls_cert: Annotated[
        str,
        _key(
            "CERTIFICATE[,KEY]: PEM files with the admin endpoint's TLS certificate chain and key; "
            "reloaded when changed."
        ),
    ] = ""
    state_dir: Annotated[
        str,
        _key(
            "Directory in which Weir saves the brokers' addresses, quotas and usage for its next start. "
            "Empty: systemd's state directory, if any."
        ),
    ] = ""
    takeover_socket: Annotated[
        str,
        _key(
            "Unix socket through which a new Weir takes over the listeners of a running Weir. Empty: no "
            "take-over."
        ),
    ] = ""
    quota_window_num: Annotated[
        int,
        msgspec.Meta(ge=2, le=SAMPLES_MAX),
        _key("Number of samples over which Weir measures a rate (quota.window.num)."),
    ] = NUM_SAMPLES_DEFAULT
    quota_window_size_seconds: Annotated[
        int, SAMPLE_S, _key("Length of each sample in seconds (quota.window.size.seconds).")
    ] = WINDOW_S_DEFAULT
    request_costs: Annotated[
        str,
        _key("File with request costs, written by weir calibrate. Empty: the costs shipped with Weir."),
    ] = ""
    request_time_scale: Annotated[
        str,
        _key(
            "Factors for estimated request time, separated by semicolons: FACTOR for all brokers, "
            "NODE=FACTOR for one broker."
        ),
    ] = "1"
    uplift: Annotated[
        bool,
        _key("Offer API versions that old brokers lack, if Weir can translate them without loss."),
    ] = True
    quota_admins: Annotated[
        str,
        _key(
            "Principals that may describe and alter quotas with Kafka's protocol, User:NAME[;...]. Empty: "
            "none."
        ),
    ] = ""
    quota_mode: Annotated[
        Literal["enforce", "shadow"],
        _key("enforce: delay or refuse requests above a quota; shadow: only count and log the throttles."),
    ] = "enforce"
    quota_pacing: Annotated[
        Literal["kafka", "smooth"],
        _key("Default pacing of quota entries. kafka: allows bursts; smooth: keeps rates even."),
    ] = "kafka"
    old_read_age_s: Annotated[
        float,
        ABOVE_0,
        _key("Age in seconds from which a fetched record batch counts toward old_read_byte_rate."),
    ] = 900.0
    empty_client_id: Annotated[
        Literal["unlimited", "default"],
        _key(
            "Quotas for clients without a client-id. unlimited: no client-id quotas, as in Kafka; default: "
            "the quotas of the default client-id."
        ),
    ] = "unlimited"
    sasl_oauthbearer_sub_claim_name: Annotated[
        str, _key("Claim that contains the principal's name in an OAUTHBEARER token.")
    ] = "sub"
    unreadable_principal: Annotated[
        str,
        _key(
            "Principal name of clients whose login hides their name from Weir. Empty: Weir closes "
            "these clients' connections."
        ),
    ] = "ANONYMOUS"
    super_users: Annotated[
        str,
        _key(
            "The brokers' principals at replication listeners, User:NAME[;User:NAME...]. Empty: every "
            "principal counts as a broker."
        ),
    ] = ""
    replication_upstream: Annotated[
        str,
        _key("The brokers' inter-broker listeners, ID@HOST:PORT[,...]. Empty: replication bypasses Weir."),
    ] = ""
    replication_listen: Annotated[
        str,
        _key(
            "[ID@]HOST:PORT: address at which other brokers reach broker ID (default 0). Broker ID + 1 "
            "gets PORT + 1, and so on."
        ),
    ] = ""
    replication_throttles: Annotated[
        str,
        _key(
            "Source of replication throttles: weir (the quota store), brokers, or the address of ZooKeeper."
        ),
    ] = "weir"
    tls_cert: Annotated[
        str,
        _key(
            "CERTIFICATE[,KEY]: PEM files with the listeners' TLS certificate chain and key; reloaded "
            "when changed."
        ),
    ] = ""
    tls_client_auth: Annotated[
        Literal["none", "requested", "required"],
        _key("none, requested or required: whether clients must present a certificate (ssl.client.auth)."),
    ] = "none"
    tls_client_ca: Annotated[
        str, _key("PEM file with the certificate authorities that issue clients' certificates.")
    ] = ""
    ssl_principal_mapping_rules: Annotated[
        str,
        _key("Rules, in Kafka's syntax, that map a client certificate's subject to the principal's name."),
    ] = "DEFAULT"
    sni_domain: Annotated[
        str,
        _key(
            "Domain of the brokers' TLS server names, broker-ID.DOMAIN. With these names, all brokers "
            "share the port of listen. Empty: one port per broker."
        ),
    ] = ""
    upstream_tls: Annotated[
        str,
        _key(
            "Certificate authorities for TLS to brokers: a PEM file, or system for the operating system's "
            "authorities. Empty: no TLS."
        ),
    ] = ""
    upstream_cert: Annotated[
        str,
        _key("CERTIFICATE[,KEY]: PEM files with Weir's certificate chain and key for TLS to brokers."),
    ] = ""
    upstream_verify_host: Annotated[
        bool,
        _key(
            "Check that each broker's certificate contains the broker's host name "
            "(ssl.endpoint.identification.algorithm)."
        ),
    ] = True
    upstream_sasl_mechanism: Annotated[
        Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
        _key("SASL mechanism of Weir's own connections to brokers. Empty: no login."),
    ] = ""
    upstream_sasl_username: Annotated[
        str, _key("User name with which Weir's own connections log in to brokers.")
    ] = ""
    upstream_sasl_password_file: Annotated[
        str, _key("File that contains only the password of upstream_sasl_username.")
    ] = ""
    upstream_sasl_token_url: Annotated[
        str,
        _key(
            "OAUTHBEARER: URL of the token endpoint (sasl.oauthbearer.token.endpoint.url). The SASL user "
            "name is the client id, and the password is the client secret."
        ),
    ] = ""
    upstream_sasl_scope: Annotated[
        str, _key("OAUTHBEARER: scope of the requested tokens. Empty: the token endpoint's default.")
    ] = ""
    upstream_sasl_extensions: Annotated[
        str, _key("OAUTHBEARER: SASL extensions (KIP-342), name=value[,name=value...].")
    ] = ""
    max_connection_creation_rate: Annotated[
        int,
        AT_LEAST_0,
        _key("Maximum number of connections per second that each listener accepts (KIP-612). 0: no limit."),
    ] = 0
    proxy_protocol_from: Annotated[
        str,
        _key("Load balancers that send PROXY protocol headers (v2), IP or NETWORK[,...]. Empty: none."),
    ] = ""
    max_connections_per_ip: Annotated[
        str,
        _key(
            "Maximum number of client connections per IP address (NUMBER[,IP:NUMBER][,...], IPv6 in "
            "brackets). 0: no limit."
        ),
    ] = "0"
    connections_max: Annotated[
        int,
        ABOVE_0,
        _key("Maximum number of open client connections. Each connection uses two file descriptors."),
    ] = 20_000
    frame_bytes_max: Annotated[
        int, ABOVE_0, _key("Maximum size of a request in bytes (socket.request.max.bytes).")
    ] = 100 * 1024 * 1024
    buffered_bytes_max: Annotated[
        int,
        ABOVE_0,
        _key(
            "Maximum number of bytes that Weir has read but not yet forwarded. Above this maximum, Weir "
            "stops reading from clients."
        ),
    ] = 512 * 1024 * 1024
    throttle_ms_max: Annotated[
        int,
        WAIT_MS,
        _key("Maximum throttle time in ms that Weir sends. Weir still charges all bytes. 0: no limit."),
    ] = 0
    drain_timeout_s: Annotated[
        float, AT_LEAST_0, _key("Time in seconds within which requests in flight can finish after SIGTERM.")
    ] = 10.0
    connection_age_max_s: Annotated[
        float,
        AT_LEAST_0,
        _key("Age in seconds (+-10 %) at which Weir drains and closes a connection. 0: no limit."),
    ] = 0.0
    login_timeout_s: Annotated[
        float,
        AT_LEAST_0,
        _key(
            "Time in seconds within which a client must log in or, without SASL, send a request. 0: no limit."
        ),
    ] = 0.0
    refresh_s: Annotated[
        float, ABOVE_0, _key("Interval in seconds at which Weir asks for the list of the cluster's brokers.")
    ] = 30.0
    usage: Annotated[
        str,
        _key(
            "Destination of usage records: a directory, or topic:NAME for a topic of the cluster; created"
            " if missing. Empty: no records."
        ),
    ] = ""
    usage_interval_ms: Annotated[
        int, INTERVAL_MS, _key("Interval in ms that each usage record covers, at most 3600000.")
    ] = 10_000
    usage_keep_bytes: Annotated[
        int,
        AT_LEAST_0,
        _key("Total size in bytes above which Weir deletes the oldest finished usage files. 0: no limit."),
    ] = 10 * 1024 * 1024 * 1024
    usage_trace_share: Annotated[
        float,
        SHARE,
        _key("Share (0 to 1) of the clients to trace, chosen by user and client-id."),
    ] = 0.0
    events_topic: Annotated[
        str,
        _key("Topic to which Weir writes events, such as throttling; created if missing. Empty: no topic."),
    ] = ""
    usage_share_topic: Annotated[
        str,
        _key("Topic through which several Weirs share quotas; created if missing. Empty: no sharing."),
    ] = ""
    share_key_file: Annotated[
        str,
        _key("File with the key (at least 16 characters) with which Weirs sign their usage reports."),
    ] = ""
    workers: Annotated[
        int,
        msgspec.Meta(ge=0, le=1024),
        _key("Number of worker processes, which serve the connections. auto: one per CPU core."),
    ] = 1
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _key("Lowest level of log lines to write.")
    ] = "info"

    @property
    def quota_store(self) -> Literal["file", "topic", "broker"]:
        """Kind of the place where the quotas are."""
        return store_of(self.quotas)


TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""Pattern of the topic names that Kafka allows, as in Kafka's `Topic.validate`."""
QUOTA_TOPIC: Final = "__weir_quotas"
"""The topic of quotas = topic, without a name."""
IN_TOPIC: Final = "topic:"
"""Beginning of a value of `usage` that is a topic's name, and no directory."""
OF_TRACES: Final = "-trace"
"""End of the name of the topic for trace records, after the name of the topic for usage records."""
SYSTEM: Final = "system"
"""Value of upstream_tls for the authorities that the operating system trusts."""
KEY_PAIRS: Final = ("tls_cert", "admin_tls_cert", "upstream_cert")
"""Keys whose values are the path of a certificate chain and, behind a comma, of its private key. Without a
comma the first file has both.
"""


FILES: Final = (
    "quotas",
    "request_costs",
    "share_key_file",
    "state_dir",
    "takeover_socket",
    "tls_cert",
    "tls_client_ca",
    "admin_token_file",
    "admin_tls_cert",
    "upstream_tls",
    "upstream_cert",
    "upstream_sasl_password_file",
    "usage",
)
"""Keys whose values are paths. In a configuration file, a relative path is relative to the file's directory.
"""
