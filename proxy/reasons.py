"""Why a session ended: one closed set of names, used in logs and as metric labels."""

from enum import StrEnum


class CloseReason(StrEnum):
    """Why a session, or a connection that never became one, was closed."""

    CLIENT_CLOSED = "client_closed"
    BROKER_CLOSED = "broker_closed"
    CLIENT_RESET = "client_reset"
    BROKER_RESET = "broker_reset"
    BROKER_UNREACHABLE = "broker_unreachable"
    CONNECT_TIMEOUT = "connect_timeout"
    CONNECTION_LIMIT = "connection_limit"
    REQUEST_TOO_LARGE = "request_too_large"
    REQUEST_TOO_SHORT = "request_too_short"
    REQUEST_VERSION_UNKNOWN = "request_version_unknown"
    REQUEST_MALFORMED = "request_malformed"
    TLS_ON_PLAIN_PORT = "tls_on_plain_port"
    RESPONSE_LENGTH_WRONG = "response_length_wrong"
    RESPONSE_UNEXPECTED = "response_unexpected"
    RESPONSE_MALFORMED = "response_malformed"
    INTERNAL_ERROR = "internal_error"
    DRAINED = "drained"
    DRAIN_TIMEOUT = "drain_timeout"
    STOPPED = "stopped"


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
