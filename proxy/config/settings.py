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
        _key("Bootstrap address for clients, HOST:PORT; an empty host is every interface, IPv4 and IPv6."),
    ] = "127.0.0.1:19092"
    quotas: Annotated[
        str,
        _key(
            "Where quotas are: a TOML file, reloaded when it changes; topic or topic:NAME, a compacted topic "
            "(__weir_quotas), created if missing; broker, the brokers' own. Empty: none."
        ),
    ] = ""
    advertised_host: Annotated[
        str, _key("Host of every broker in responses; empty: the address that the client reached.")
    ] = ""
    broker_ports: Annotated[
        str,
        _key(
            "FIRST-LAST[@NODE_ID][,...]; the broker NODE_ID listens at FIRST (without: 0, or derived); "
            "empty: 100 ports after listen."
        ),
    ] = ""
    admin: Annotated[str, _key("HOST:PORT of the admin endpoint (metrics, health, API); empty: off.")] = ""
    admin_token_file: Annotated[
        str,
        _key("File with the token of the admin endpoint, at least 16 characters; reloaded."),
    ] = ""
    admin_tls_cert: Annotated[
        str,
        _key("CERTIFICATE[,KEY]: chain and key (PEM) of the admin endpoint, which enables TLS; reloaded."),
    ] = ""
    state_dir: Annotated[
        str,
        _key("Directory of files for the next start (brokers, quotas, usage); empty: systemd's, if any."),
    ] = ""
    takeover_socket: Annotated[
        str,
        _key("Unix socket at which a new Weir takes over the listeners of a running one; empty: none."),
    ] = ""
    quota_window_num: Annotated[
        int,
        msgspec.Meta(ge=2, le=SAMPLES_MAX),
        _key(
            "Samples a rate is measured over (quota.window.num); the burst of mutations is "
            "rate * samples * seconds."
        ),
    ] = NUM_SAMPLES_DEFAULT
    quota_window_size_seconds: Annotated[
        int, SAMPLE_S, _key("Seconds of each sample (quota.window.size.seconds).")
    ] = WINDOW_S_DEFAULT
    request_costs: Annotated[
        str,
        _key("File of request costs, made by weir calibrate; empty: the shipped costs."),
    ] = ""
    request_time_scale: Annotated[
        str,
        _key("Factor of estimated request time, FACTOR or, by broker, NODE=FACTOR[;NODE=FACTOR...]."),
    ] = "1"
    uplift: Annotated[
        bool,
        _key("Offer clients newer versions than old brokers have, and translate where nothing is lost."),
    ] = True
    quota_admins: Annotated[
        str,
        _key(
            "Principals that may describe and alter quotas over Kafka's protocol, User:NAME[;User:NAME...]; "
            "empty: nobody."
        ),
    ] = ""
    quota_mode: Annotated[
        Literal["enforce", "shadow"],
        _key("shadow: compute, count and log throttles, but delay and refuse nothing."),
    ] = "enforce"
    quota_pacing: Annotated[
        Literal["kafka", "smooth"],
        _key("Pacing of byte rates whose entry has none. kafka: bursts, as brokers; smooth: even rates."),
    ] = "kafka"
    old_read_age_s: Annotated[
        float, ABOVE_0, _key("Age in seconds from which fetched record batches count as old_read_byte_rate.")
    ] = 900.0
    empty_client_id: Annotated[
        Literal["unlimited", "default"],
        _key("Clients without a client-id. unlimited: as in Kafka; default: default client-id quotas apply."),
    ] = "unlimited"
    sasl_oauthbearer_sub_claim_name: Annotated[
        str, _key("The claim of an OAUTHBEARER token that is the principal's name.")
    ] = "sub"
    unreadable_principal: Annotated[
        str,
        _key("The principal's name of logins that show none to Weir; empty: such connections are closed."),
    ] = "ANONYMOUS"
    super_users: Annotated[
        str,
        _key("The brokers' principals at replication listeners, User:NAME[;User:NAME...]; empty: all there."),
    ] = ""
    replication_upstream: Annotated[
        str,
        _key("The brokers' inter-broker listeners, ID@HOST:PORT[,ID@HOST:PORT...]; empty: not through Weir."),
    ] = ""
    replication_listen: Annotated[
        str,
        _key("[ID@]HOST:PORT at which brokers reach the broker ID (without: 0); the next has PORT + 1."),
    ] = ""
    replication_throttles: Annotated[
        str,
        _key("Where replication throttles are: weir (the quota store), brokers, or ZooKeeper's address."),
    ] = "weir"
    tls_cert: Annotated[
        str,
        _key("CERTIFICATE[,KEY]: chain and key (PEM) of the listeners, which enables TLS; reloaded."),
    ] = ""
    tls_client_auth: Annotated[
        Literal["none", "requested", "required"],
        _key("Whether clients must show a certificate (ssl.client.auth)."),
    ] = "none"
    tls_client_ca: Annotated[str, _key("Authorities (PEM) of clients' certificates.")] = ""
    ssl_principal_mapping_rules: Annotated[
        str, _key("Rules from a client certificate's subject to a principal's name, in Kafka's syntax.")
    ] = "DEFAULT"
    sni_domain: Annotated[
        str,
        _key(
            "Serve all brokers at the port of listen, as broker-ID.DOMAIN by TLS server name; "
            "empty: a port per broker."
        ),
    ] = ""
    upstream_tls: Annotated[
        str,
        _key(
            "TLS towards brokers: a file with authorities (PEM) of their certificates, or system; empty: off."
        ),
    ] = ""
    upstream_cert: Annotated[
        str, _key("CERTIFICATE[,KEY]: chain and key (PEM) that Weir shows to brokers.")
    ] = ""
    upstream_verify_host: Annotated[
        bool,
        _key("Check that a broker's certificate names its host (ssl.endpoint.identification.algorithm)."),
    ] = True
    upstream_sasl_mechanism: Annotated[
        Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
        _key("SASL mechanism of Weir's own connections to brokers; empty: none."),
    ] = ""
    upstream_sasl_username: Annotated[str, _key("The user of Weir's own connections to brokers.")] = ""
    upstream_sasl_password_file: Annotated[str, _key("File with that user's password, and nothing else.")] = (
        ""
    )
    upstream_sasl_token_url: Annotated[
        str,
        _key(
            "OAUTHBEARER: token endpoint (sasl.oauthbearer.token.endpoint.url) for the user (client id) and "
            "password (client secret)."
        ),
    ] = ""
    upstream_sasl_scope: Annotated[
        str, _key("OAUTHBEARER: scope of the tokens; empty: the endpoint's default.")
    ] = ""
    upstream_sasl_extensions: Annotated[
        str, _key("OAUTHBEARER: SASL extensions (KIP-342), as name=value,name=value.")
    ] = ""
    max_connection_creation_rate: Annotated[
        int, AT_LEAST_0, _key("Connections per second that each listener accepts (KIP-612); 0: no limit.")
    ] = 0
    proxy_protocol_from: Annotated[
        str,
        _key("Load balancers that send PROXY headers (v2), IP or network[,...]; empty: none."),
    ] = ""
    max_connections_per_ip: Annotated[
        str,
        _key(
            "Client connections from one IP address at a time, NUMBER[,IP:NUMBER][,[IPV6]:NUMBER]...; "
            "0: no limit."
        ),
    ] = "0"
    connections_max: Annotated[
        int, ABOVE_0, _key("Client connections at a time; each uses two descriptors.")
    ] = 20_000
    frame_bytes_max: Annotated[
        int, ABOVE_0, _key("The largest request in bytes (socket.request.max.bytes).")
    ] = 100 * 1024 * 1024
    buffered_bytes_max: Annotated[
        int,
        ABOVE_0,
        _key("Bytes read and not passed on, of all connections; above, none reads more."),
    ] = 512 * 1024 * 1024
    throttle_ms_max: Annotated[
        int,
        WAIT_MS,
        _key("Longest throttle time in ms sent to clients; longer ones stay charged. 0: no limit."),
    ] = 0
    drain_timeout_s: Annotated[
        float, AT_LEAST_0, _key("Seconds for requests in flight to finish at SIGTERM.")
    ] = 10.0
    connection_age_max_s: Annotated[
        float,
        AT_LEAST_0,
        _key("Seconds, +-10 %, after which a connection is drained and closed; 0: no limit."),
    ] = 0.0
    login_timeout_s: Annotated[
        float,
        AT_LEAST_0,
        _key("Seconds for a client to log in or, without SASL, to send a request; 0: no limit."),
    ] = 0.0
    refresh_s: Annotated[float, ABOVE_0, _key("Seconds between requests for the cluster's brokers.")] = 30.0
    usage: Annotated[
        str,
        _key(
            "Where usage records go: a directory, or topic:NAME of the cluster, with NAME-trace for traces; "
            "created if missing. Empty: nowhere."
        ),
    ] = ""
    usage_interval_ms: Annotated[
        int, INTERVAL_MS, _key("Milliseconds per usage record, at most 3600000.")
    ] = 10_000
    usage_keep_bytes: Annotated[
        int,
        AT_LEAST_0,
        _key("Bytes of finished files kept in the directory; the oldest are deleted. 0: no limit."),
    ] = 10 * 1024 * 1024 * 1024
    usage_trace_share: Annotated[
        float,
        SHARE,
        _key("Share of users and client-ids whose requests are traced one by one, 0 to 1."),
    ] = 0.0
    events_topic: Annotated[
        str,
        _key("Topic of the cluster for events, such as throttling; created if missing. Empty: no topic."),
    ] = ""
    usage_share_topic: Annotated[
        str,
        _key(
            "Topic over which several Weirs share quotas, created if missing; empty: quotas are not shared."
        ),
    ] = ""
    share_key_file: Annotated[
        str,
        _key("File with a key of 16 characters or more, by which Weirs sign their reports."),
    ] = ""
    workers: Annotated[
        int,
        msgspec.Meta(ge=0, le=1024),
        _key("Processes that move bytes for clients, under a supervisor; auto: one per core."),
    ] = 1
    log_level: Annotated[Literal["debug", "info", "warning", "error"], _key("Lowest level to log.")] = "info"

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
