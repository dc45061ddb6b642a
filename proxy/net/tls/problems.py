"""Descriptions of TLS errors that say what to do; close reasons of refused clients.

OpenSSL's reasons are names such as WRONG_VERSION_NUMBER; alerts from the peer contain ALERT.
docs/how-to/tls.md has a table of these texts.
"""

from __future__ import annotations

import ssl
from typing import Final

from weir.proxy.close_reasons import CloseReason

HOSTNAME_MISMATCH: Final = frozenset({62, 64})
"""Codes by which OpenSSL says that a certificate is for another host: X509_V_ERR_HOSTNAME_MISMATCH and
X509_V_ERR_IP_ADDRESS_MISMATCH.
"""
EXPIRED: Final = 10
"""Code by which OpenSSL says that a certificate has expired: X509_V_ERR_CERT_HAS_EXPIRED."""
NOT_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "HTTPS_PROXY_REQUEST"}
)
NO_CERTIFICATE: Final = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
NOTHING_IN_COMMON: Final = frozenset(
    {"UNSUPPORTED_PROTOCOL", "NO_SHARED_CIPHER", "NO_PROTOCOLS_AVAILABLE", "VERSION_TOO_LOW"}
)
OUR_CERTIFICATE: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")
"""Parts of the names of TLS alerts by which a peer refuses the certificate that Weir has shown, or demands
one.
"""
BROKER_CLOSED: Final = (
    "it closed the connection during the TLS handshake, or right after: is its listener plain (leave out "
    "upstream_tls), or does it want another certificate (upstream_cert)?"
)


def of_broker(error: ssl.SSLError) -> str:
    """Describe why the TLS connection to a broker failed."""
    reason = _reason(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_brokers_certificate(error)
    if reason in NOT_TLS:
        return "it does not speak TLS: name its SSL or SASL_SSL listener, or leave out upstream_tls"
    if isinstance(error, ssl.SSLEOFError):
        return BROKER_CLOSED
    if "ALERT" in reason and any(part in reason for part in OUR_CERTIFICATE):
        return f"it wants a client certificate that it trusts: set upstream_cert ({_words(reason)})"
    if "ALERT_HANDSHAKE_FAILURE" in reason:
        return "it refused the TLS handshake: it may want a client certificate, set upstream_cert"
    return f"TLS failed: {_words(reason)}"


def _of_brokers_certificate(error: ssl.SSLCertVerificationError) -> str:
    said = error.verify_message.rstrip(".")
    if error.verify_code in HOSTNAME_MISMATCH:
        return (
            f"its certificate is for other names: {said}: name the broker as its "
            "certificate does, or set upstream_verify_host = false"
        )
    if error.verify_code == EXPIRED:
        return f"its certificate is not accepted: {said}: renew it"
    return f"its certificate is not trusted: {said}: set upstream_tls to the authority that signed it"


def of_client(error: ssl.SSLError) -> tuple[CloseReason, str]:
    """Describe why a client's TLS handshake failed; return the close reason and the text."""
    reason = _reason(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        said = f"its certificate is not trusted: {error.verify_message}: see tls_client_ca"
        return CloseReason.CLIENT_CERTIFICATE_INVALID, said
    if reason == NO_CERTIFICATE:
        said = "it showed no certificate: set ssl.keystore.location there, or tls_client_auth = requested"
        return CloseReason.CLIENT_CERTIFICATE_MISSING, said
    if reason in NOT_TLS:
        return CloseReason.PLAIN_ON_TLS_PORT, PLAIN_CLIENT
    return CloseReason.CLIENT_HANDSHAKE_FAILED, of_established_client(error)


PLAIN_CLIENT: Final = (
    "the client does not speak TLS, this port does: set security.protocol=SSL (or SASL_SSL) there"
)


def of_established_client(error: ssl.SSLError) -> str:
    """Describe why a client's TLS connection broke."""
    reason = _reason(error)
    if isinstance(error, ssl.SSLEOFError):
        return "it closed the connection during the TLS handshake: does it trust the certificate of tls_cert?"
    if "ALERT" in reason and any(part in reason for part in OUR_CERTIFICATE):
        said = "it does not accept the certificate of tls_cert: its truststore, the names in the certificate"
        return f"{said} ({_words(reason)})"
    if reason in NOTHING_IN_COMMON or "ALERT_PROTOCOL_VERSION" in reason:
        return f"no TLS version or cipher in common, TLS 1.2 is the oldest here ({_words(reason)})"
    return f"TLS failed: {_words(reason)}"


def of_files(error: ssl.SSLError) -> str:
    """Describe why OpenSSL refuses a file."""
    reason = _reason(error)
    if reason == "KEY_VALUES_MISMATCH":
        return "the key is not that of the certificate"
    if "PEM" in reason or reason in ("NO_START_LINE", "NO_CERTIFICATE_OR_CRL_FOUND", "BAD_BASE64_DECODE"):
        return "it is not PEM, or the wrong kind: certificates and keys begin with -----BEGIN"
    return _words(reason)


def _reason(error: ssl.SSLError) -> str:
    return str(getattr(error, "reason", None) or (error.args[-1] if error.args else error))


def _words(reason: str) -> str:
    return reason.replace("_", " ").lower() if reason.isupper() else reason
