"""Cases of a probe: bytes to send, outcomes that are permitted, and the result."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class CaseOutcome(StrEnum):
    """The target's reaction to a case's bytes."""

    ANSWER = "answer"
    """A response that decodes at the request's version, without an error code."""
    ERROR = "error"
    """A response that decodes at the request's version, with an error code."""
    CLOSED = "closed"
    """The target closed the connection without a response."""
    SILENCE = "silence"
    """No response was due, none came, and the connection still answers: Produce with acks=0."""
    HUNG = "hung"
    """Neither a response nor an end of the connection came before the deadline."""
    UNREADABLE = "unreadable"
    """A response that does not decode at the request's version, or that has another correlation id."""
    REFUSED = "refused"
    """The target did not accept the connection."""


class Case(msgspec.Struct, frozen=True):
    """One conversation on a connection of its own: bytes, then a wait for the outcome."""

    name: str
    """Unique and stable: "Metadata/v9/minimal", "Metadata/v9/null-topics", "SaslAuthenticate/v2/unasked"."""
    api_key: int
    version: int
    """Version at which a response is decoded. It may differ from that in the bytes (an unknown version)."""
    data: bytes
    """Frames, with their length prefixes; the last one is the subject. Frames before it get answers first."""
    permitted: frozenset[CaseOutcome]
    """Outcomes that keep the protocol."""
    errors: frozenset[int] | None = None
    """Error codes that the protocol permits with ERROR; None permits every code that Kafka has."""
    ends_sending: bool = False
    """True if the client then ends its side of the connection: the target waits for bytes rightly."""
    request: str = ""
    """Sentence that says how the request is malformed; "" for other requests."""
    reference: str = ""
    """KIP or chapter of the protocol guide that demands the outcome."""
    segment_bytes: int = 0
    """Number of bytes given to each `send`; 0 for all bytes at once."""
    raw_tokens: int = 0
    """Number of frames after the first that are SASL tokens without a header (SaslHandshake v0). The target
    answers each, except the last one of the case, with such a frame.
    """
    dangerous: bool = False
    """True if some releases of Kafka allocate the memory that the bytes claim, and may end
    (CVE-2022-34917).
    """
    unauthenticated: bool = False
    """True if the connection is not authenticated before."""


class Result(msgspec.Struct, frozen=True):
    """Outcome of one case."""

    case: str
    """Name of the case."""
    api: str
    """Kafka's name of the API; "API 999" if the schemas lack it."""
    version: int
    outcome: CaseOutcome
    errors: list[int]
    """Distinct error codes in the response, ascending, without 0."""
    passed: bool
    """True if the case permits the outcome, and the error codes."""
    message: str
    """"" if passed; otherwise one line that says what the target does, what it should do, and by which
    reference."""
    repeat: str = ""
    """Command that repeats this case alone."""

    @property
    def summary(self) -> str:
        """The outcome in one word, with error codes: "answer", "error 3 17", "closed"."""
        return " ".join((self.outcome.value, *map(str, self.errors)))
