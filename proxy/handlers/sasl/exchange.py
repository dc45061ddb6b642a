"""One SASL exchange, followed: what the client claims, and when the broker has believed it.

A broker's answer without an error is a step, and not yet success: OAUTHBEARER's servers send the reason of a
failure that way, SCRAM's the salt. Which answer ends a mechanism successfully says `_is_last` (Kafka's
PlainSaslServer, ScramSaslServer, OAuthBearerSaslServer). Of other mechanisms neither the name nor the end can
be seen: these are *hidden*, and over when the client goes on with something else, which a broker takes only
then.

Of a token nothing is kept but the name in it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from protocol.error_codes import ErrorCode
from protocol.errors import TokenError
from protocol.sasl import (
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
"""Mechanisms whose tokens show the name."""
OTHER: Final = "other"
"""What a mechanism is called that is none of Kafka's own: clients can invent names."""
SCRAM_SUCCESS: Final = b"v="
SCRAM_ERROR: Final = b"e="
_AFTER_SUCCESS: Final = frozenset({ErrorCode.NONE, ErrorCode.ILLEGAL_SASL_STATE})
"""Authentication anew begins; there is no such thing here."""


class Step(Enum):
    """What a broker's answer means for the exchange."""

    GOES_ON = auto()
    SUCCEEDED = auto()
    FAILED = auto()


class Exchange:
    """An exchange, from SaslHandshake on."""

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

    def __init__(self, mechanism: str, claim: str, *, raw: bool, before: Exchange | None = None) -> None:
        """Begin with the client's SaslHandshake.

        `claim` is OAUTHBEARER's, `raw` is whether tokens come bare: SaslHandshake v0; `before` is what was
        under way.
        """
        self.before = before
        """The exchange that this one may end; see `has_succeeded`."""
        self.mechanism = mechanism if mechanism in NAMED or mechanism == GSSAPI else OTHER
        self.raw = raw
        self.accepted = False
        """The broker has answered the handshake without an error."""
        self.claimed: Claimed | None = None
        """Who the client says it is, in the token that the broker answers next or has answered."""
        self.unreadable = ""
        """Why that is None, in words without anything of the token."""
        self.answers = 0
        """How many tokens the broker has sent."""
        self._claim = claim
        self._tokens = 0

    @property
    def hidden(self) -> bool:
        """Whether the mechanism does not show the name."""
        return self.mechanism not in NAMED

    @property
    def begun(self) -> bool:
        """Whether the client has sent a token."""
        return self._tokens > 0

    def has_succeeded(self, error_code: int) -> bool:
        """Whether it has, being hidden, if this is what the broker answers to another SaslHandshake.

        In the middle of an exchange brokers close the connection.
        """
        return self.hidden and self.answers > 0 and error_code in _AFTER_SUCCESS

    def token(self, token: bytes) -> None:
        """The client sends a token."""
        self._tokens += 1
        if self.hidden:
            return
        try:
            claimed = self._read(token)
        except TokenError as error:
            if self.mechanism in SCRAM and self._tokens > 1:
                return  # the proof; the name was in the first
            self.claimed, self.unreadable = None, error.reason
        else:
            self.claimed, self.unreadable, self._tokens = claimed, "", 1

    def answer(self, error_code: int, token: bytes, session_lifetime_ms: int = 0) -> Step:
        """The broker answers the client's latest token."""
        if error_code != ErrorCode.NONE or (self.mechanism in SCRAM and token.startswith(SCRAM_ERROR)):
            succeeded_before = self.has_succeeded(error_code)
            self.claimed, self._tokens, self.answers = None, 0, 0
            return Step.SUCCEEDED if succeeded_before else Step.FAILED
        self.answers += 1
        return Step.SUCCEEDED if self._is_last(token, session_lifetime_ms) else Step.GOES_ON

    def _is_last(self, token: bytes, session_lifetime_ms: int) -> bool:
        if self.hidden:
            return session_lifetime_ms > 0  # a broker tells it at the end only (KIP-368)
        if self.mechanism in SCRAM:
            return self._tokens > 1 and token.startswith(SCRAM_SUCCESS)
        return self.begun and not token

    def _read(self, token: bytes) -> Claimed:
        if self.mechanism == PLAIN:
            return Claimed(plain_name(token))
        if self.mechanism == OAUTHBEARER:
            return Claimed(oauthbearer_name(token, self._claim))
        return scram_name(token)
