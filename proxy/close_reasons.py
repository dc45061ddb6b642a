"""Why a session ended: one closed set of names, used in logs and as metric labels."""

from enum import StrEnum


class CloseReason(StrEnum):
    """Why a session, or a connection that never became one, was closed."""

    CLIENT_CLOSED = "client_closed"
    BROKER_CLOSED = "broker_closed"
    CLIENT_RESET = "client_reset"
    """Also: it vanished without a word, and keepalive or a retransmission has timed out."""
    BROKER_RESET = "broker_reset"
    """Also: it vanished without a word."""
    BROKER_UNREACHABLE = "broker_unreachable"
    CONNECT_TIMEOUT = "connect_timeout"
    CONNECTION_LIMIT = "connection_limit"
    CONNECTION_RATE = "connection_rate"
    """Its IP address opens more per second than its quota (KIP-612)."""
    CONNECTIONS_PER_IP = "connections_per_ip"
    OUT_OF_RESOURCES = "out_of_resources"
    """The system had no descriptor, memory or local port for the connection to the broker."""
    REQUEST_TOO_LARGE = "request_too_large"
    REQUEST_TOO_SHORT = "request_too_short"
    REQUEST_VERSION_UNKNOWN = "request_version_unknown"
    TOPICS_UNNAMED = "topics_unnamed"
    """A version that names no topics, some of which have rates; the client may come again."""
    REQUEST_MALFORMED = "request_malformed"
    NAME_UNREADABLE = "name_unreadable"
    """The broker has accepted a client whose name Weir cannot read; no other name is configured for it."""
    TLS_ON_PLAIN_PORT = "tls_on_plain_port"
    PLAIN_ON_TLS_PORT = "plain_on_tls_port"
    CLIENT_HANDSHAKE_FAILED = "client_handshake_failed"
    CLIENT_HANDSHAKE_TIMEOUT = "client_handshake_timeout"
    CLIENT_CERTIFICATE_MISSING = "client_certificate_missing"
    CLIENT_CERTIFICATE_INVALID = "client_certificate_invalid"
    """Not signed by an authority of tls_client_ca, or expired."""
    PRINCIPAL_UNMAPPED = "principal_unmapped"
    """None of ssl_principal_mapping_rules applies to the client's certificate."""
    SERVER_NAME_UNKNOWN = "server_name_unknown"
    """The client asked for a broker, by SNI, that Weir has not met."""
    BROKER_HANDSHAKE_FAILED = "broker_handshake_failed"
    RESPONSE_LENGTH_WRONG = "response_length_wrong"
    RESPONSE_UNEXPECTED = "response_unexpected"
    RESPONSE_MALFORMED = "response_malformed"
    INTERNAL_ERROR = "internal_error"
    DRAINED = "drained"
    DRAIN_TIMEOUT = "drain_timeout"
    STOPPED = "stopped"
    """Closed at once: by a second signal, or still on its way to the broker at the first one."""


BY_CLIENTS = frozenset(
    {
        CloseReason.REQUEST_TOO_LARGE,
        CloseReason.REQUEST_TOO_SHORT,
        CloseReason.REQUEST_VERSION_UNKNOWN,
        CloseReason.REQUEST_MALFORMED,
        CloseReason.TLS_ON_PLAIN_PORT,
    }
)
"""What a client sent that is not Kafka's protocol as Weir can read it."""
BY_PEERS = frozenset(
    {
        CloseReason.CLIENT_CLOSED,
        CloseReason.BROKER_CLOSED,
        CloseReason.CLIENT_RESET,
        CloseReason.BROKER_RESET,
        CloseReason.DRAINED,
        CloseReason.STOPPED,
    }
)
"""Ends that need nobody's attention: logged at debug level, counted like the others."""
