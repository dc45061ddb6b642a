"""Close reasons: a closed set of names, used in logs and as metric labels."""

from enum import StrEnum


class CloseReason(StrEnum):
    """Reason why a connection was closed, or a client refused."""

    CLIENT_CLOSED = "client_closed"
    BROKER_CLOSED = "broker_closed"
    CLIENT_RESET = "client_reset"
    """The client has reset the connection, or vanished: keepalive or a retransmission has timed out."""
    BROKER_RESET = "broker_reset"
    """The broker has reset the connection, or vanished."""
    BROKER_UNREACHABLE = "broker_unreachable"
    CONNECT_TIMEOUT = "connect_timeout"
    BROKER_MISDIRECTED = "broker_misdirected"
    """The broker's address leads to Weir itself, or is right for the broker's own host only."""
    CONNECTION_LIMIT = "connection_limit"
    CONNECTION_RATE = "connection_rate"
    """The client's IP address opens more connections per second than its quota (KIP-612)."""
    CONNECTIONS_PER_IP = "connections_per_ip"
    PROXY_HEADER_MISSING = "proxy_header_missing"
    """A peer in `proxy_protocol_from` has sent other bytes than a PROXY header."""
    PROXY_HEADER_INVALID = "proxy_header_invalid"
    """A peer in `proxy_protocol_from` has sent a PROXY header that is of version 1, malformed, too long, or
    not complete.
    """
    PROXY_HEADER_TIMEOUT = "proxy_header_timeout"
    """A peer in `proxy_protocol_from` has not sent a complete PROXY header in time."""
    OUT_OF_RESOURCES = "out_of_resources"
    """The system had no descriptor, memory or local port for the connection to the broker."""
    REQUEST_TOO_LARGE = "request_too_large"
    REQUEST_TOO_SHORT = "request_too_short"
    REQUEST_VERSION_UNKNOWN = "request_version_unknown"
    TOPICS_UNNAMED = "topics_unnamed"
    """A client that is no admin has sent records for topic ids whose names are unknown, while topics are
    protected, in a request that Weir could not answer with an error, for the reasons of TOPIC_PROTECTED.
    """
    TOPIC_PROTECTED = "topic_protected"
    """A client that is no admin has sent records for one of Weir's own topics, in a request that Weir could
    not answer with an error. Examples: the client expects no response (acks=0), or Weir had already forwarded
    a part of the request when it read the topic's name.
    """
    REQUEST_MALFORMED = "request_malformed"
    NAME_UNREADABLE = "name_unreadable"
    """The broker has accepted a client whose name Weir cannot read, and no substitute name is configured."""
    BUFFERED_BYTES = "buffered_bytes"
    """All connections together hold more bytes than `buffered_bytes_max`, and this connection held more than
    the others.
    """
    TLS_ON_PLAIN_PORT = "tls_on_plain_port"
    PLAIN_ON_TLS_PORT = "plain_on_tls_port"
    CLIENT_HANDSHAKE_FAILED = "client_handshake_failed"
    CLIENT_HANDSHAKE_TIMEOUT = "client_handshake_timeout"
    UNFINISHED_HANDSHAKES = "unfinished_handshakes"
    """The client's IP address has TLS handshakes that have not ended, and these use half of all places for
    connections.
    """
    CLIENT_CERTIFICATE_MISSING = "client_certificate_missing"
    CLIENT_CERTIFICATE_INVALID = "client_certificate_invalid"
    """The client's certificate has expired, or no authority in `tls_client_ca` has signed it."""
    PRINCIPAL_UNMAPPED = "principal_unmapped"
    """No rule in ssl_principal_mapping_rules applies to the client's certificate."""
    SERVER_NAME_UNKNOWN = "server_name_unknown"
    """The client asked for an unknown broker, by server name (SNI)."""
    BROKER_HANDSHAKE_FAILED = "broker_handshake_failed"
    RESPONSE_LENGTH_WRONG = "response_length_wrong"
    RESPONSE_UNEXPECTED = "response_unexpected"
    RESPONSE_MALFORMED = "response_malformed"
    INTERNAL_ERROR = "internal_error"
    LOGIN_TIMEOUT = "login_timeout"
    """Within `login_timeout_s`, the client has not logged in or, where no login is needed, sent a request."""
    CONNECTION_AGE = "connection_age"
    """The connection has reached `connection_age_max_s`, and its requests in flight were answered."""
    DRAINED = "drained"
    DRAIN_TIMEOUT = "drain_timeout"
    STOPPED = "stopped"
    """Weir has stopped: by a second signal, or by the first one while the broker was not connected yet."""


BY_CLIENTS = frozenset(
    {
        CloseReason.REQUEST_TOO_LARGE,
        CloseReason.REQUEST_TOO_SHORT,
        CloseReason.REQUEST_VERSION_UNKNOWN,
        CloseReason.REQUEST_MALFORMED,
        CloseReason.TLS_ON_PLAIN_PORT,
    }
)
"""Reasons caused by clients: they sent bytes that Weir cannot read as Kafka's protocol."""
BY_PEERS = frozenset(
    {
        CloseReason.CLIENT_CLOSED,
        CloseReason.BROKER_CLOSED,
        CloseReason.CLIENT_RESET,
        CloseReason.BROKER_RESET,
        CloseReason.CONNECTION_AGE,
        CloseReason.DRAINED,
        CloseReason.STOPPED,
    }
)
"""Reasons for normal ends of connections, caused by a peer or by time. They are logged at debug level only,
and counted like all others.
"""
