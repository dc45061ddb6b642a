"""One SASL exchange: the name that the client claims, and when the broker has accepted it.

A broker's response without an error code is not yet success: OAUTHBEARER servers send the reason of a failure
in such a response, SCRAM servers the salt. `_is_last` decides which response is the successful end (Kafka's
PlainSaslServer, ScramSaslServer, OAuthBearerSaslServer). Other mechanisms show neither the name nor the end.
These *hidden* exchanges end when the client sends another request, which a broker accepts only after success.

Weir keeps only the name from a token.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import TokenError
from weir.protocol.sasl import (
    GSSAPI,
    OAUTHBEARER,
    PLAIN,
    SCRAM,
    Claimed,
    oauthbearer_name,
    plain_name,
    scram_name,
)

NAMED: Final = frozenset({PLAIN, OAUTHBEARER, *SCRAM})
"""Mechanisms whose tokens show the client's name."""
OTHER: Final = "other"
"""Name that Weir uses for all mechanisms that Kafka lacks, because clients can send any text as a mechanism.
"""
SCRAM_SUCCESS: Final = b"v="
SCRAM_ERROR: Final = b"e="
_AFTER_SUCCESS: Final = frozenset({ErrorCode.NONE, ErrorCode.ILLEGAL_SASL_STATE})
"""Error codes of a broker's response to a second SaslHandshake from which Weir concludes that the exchange
before it has succeeded. A broker sends one of these codes only to a client that reauthenticates. Used for
mechanisms whose tokens Weir cannot read.
"""


class SaslStep(Enum):
    """Meaning of a broker's response to a SASL token: the exchange goes on, has succeeded or has failed."""

    GOES_ON = auto()
    SUCCEEDED = auto()
    FAILED = auto()


class SaslExchange:
    """A SASL exchange, from the client's SaslHandshake on."""

    __slots__ = (
        "_claim",
        "_tokens",
        "accepted",
        "answers",
        "before",
        "claimed",
        "mechanism",
        "raw",
        "unreadable",
    )

    def __init__(self, mechanism: str, claim: str, *, raw: bool, before: SaslExchange | None = None) -> None:
        """Begin with the client's SaslHandshake.

        `claim` is the claim of OAUTHBEARER tokens that has the name. `raw` is True if tokens have no Kafka
        header (SaslHandshake v0). `before` is the previous exchange, if it may still be in progress, else
        None.
        """
        self.before = before
        """Exchange that was in progress when the client sent this SaslHandshake; else None. The
        broker's response to the SaslHandshake may prove that the earlier exchange has succeeded.
        """
        self.mechanism = mechanism if mechanism in NAMED or mechanism == GSSAPI else OTHER
        self.raw = raw
        self.accepted = False
        """True if the broker has answered the SaslHandshake without an error."""
        self.claimed: Claimed | None = None
        """Name that the client claims in its latest token that Weir could read; the broker then accepts or
        refuses the client. None if there is no such name.
        """
        self.unreadable = ""
        """Reason why the name in the client's token cannot be read, without any part of the token; empty if
        it can be read.
        """
        self.answers = 0
        """Number of tokens in this exchange that the broker has answered without an error."""
        self._claim = claim
        self._tokens = 0

    @property
    def hidden(self) -> bool:
        """True if the tokens of the mechanism do not show the client's name."""
        return self.mechanism not in NAMED

    @property
    def in_progress(self) -> bool:
        """True if the client's next bytes may be SASL tokens without a Kafka header, or a request that shows
        the end of this exchange. `tokens.from_client` must then process these bytes before `inbound` reads
        requests.
        """
        return self.accepted and (self.raw or self.hidden)

    @property
    def begun(self) -> bool:
        """True if the client has sent a token."""
        return self._tokens > 0

    def has_succeeded(self, error_code: int) -> bool:
        """Return True if this exchange is hidden (its tokens do not show the name) and has succeeded.

        `error_code` is from the broker's response to the client's next SaslHandshake or token. A broker that
        gets a SaslHandshake before the end of an exchange closes the connection, and does not respond.
        """
        return self.hidden and self.answers > 0 and error_code in _AFTER_SUCCESS

    def token(self, token: bytes) -> None:
        """Record the name that the client's token claims, or the reason why the name cannot be read."""
        self._tokens += 1
        if self.hidden:
            return
        try:
            claimed = self._read(token)
        except TokenError as error:
            if self.mechanism in SCRAM and self._tokens > 1:
                return  # the proof; the first token had the name
            self.claimed, self.unreadable = None, error.reason
        else:
            self.claimed, self.unreadable, self._tokens = claimed, "", 1

    def answer(self, error_code: int, token: bytes, session_lifetime_ms: int = 0) -> SaslStep:
        """Process the broker's response to the latest token: its error code and its token. Return its meaning
        for the exchange (goes on, has succeeded, has failed).
        """
        if error_code != ErrorCode.NONE or (self.mechanism in SCRAM and token.startswith(SCRAM_ERROR)):
            succeeded_before = self.has_succeeded(error_code)
            self.claimed, self._tokens, self.answers = None, 0, 0
            return SaslStep.SUCCEEDED if succeeded_before else SaslStep.FAILED
        self.answers += 1
        return SaslStep.SUCCEEDED if self._is_last(token, session_lifetime_ms) else SaslStep.GOES_ON

    def _is_last(self, token: bytes, session_lifetime_ms: int) -> bool:
        if self.hidden:
            return session_lifetime_ms > 0  # a broker sends it only at the end (KIP-368)
        if self.mechanism in SCRAM:
            return self._tokens > 1 and token.startswith(SCRAM_SUCCESS)
        return self.begun and not token

    def _read(self, token: bytes) -> Claimed:
        if self.mechanism == PLAIN:
            return Claimed(plain_name(token))
        if self.mechanism == OAUTHBEARER:
            return Claimed(oauthbearer_name(token, self._claim))
        return scram_name(token)


class SaslLogin(NamedTuple):
    """The result of a client's SASL exchanges on one connection."""

    mechanism: str
    """Mechanism of the latest exchange."""
    accepted: bool
    """True if the broker has accepted the client in one of the exchanges."""
