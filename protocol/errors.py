"""Errors of decoding and encoding."""

from __future__ import annotations


class ProtocolError(Exception):
    """Bytes that are not Kafka's protocol, or a message that cannot be encoded.

    `api` is the message's name ("MetadataResponse") or empty; `version` and `offset` (bytes from the start of
    the buffer) are -1 if unknown. `str()` includes all of them.
    """

    def __init__(self, reason: str, *, api: str = "", version: int = -1, offset: int = -1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.api = api
        self.version = version
        self.offset = offset

    def __str__(self) -> str:
        message = f"{self.api or 'message'} v{self.version}" if self.version >= 0 else self.api
        where = " ".join(filter(None, (message, f"at byte {self.offset}" if self.offset >= 0 else "")))
        return f"{where}: {self.reason}" if where else self.reason


class EncodeError(ProtocolError):
    """A message that this version cannot express; `field` ("topics.partitions.leader_epoch") is the
    culprit.
    """

    def __init__(self, reason: str, *, field: str, api: str = "", version: int = -1) -> None:
        super().__init__(reason, api=api, version=version)
        self.field = field

    def __str__(self) -> str:
        message = f"{self.api} v{self.version}, " if self.api else ""
        return f"{message}field {self.field}: {self.reason}"


class UnencodableError(ProtocolError):
    """A request that a broker can read but that cannot be encoded again: its text is not UTF-8, and too long
    once the invalid bytes are replaced.
    """


class OversizedError(UnencodableError):
    """A request that a broker can read, with more elements, numbers or tagged fields than Weir reads."""


class UnknownVersionError(ProtocolError):
    """An API or version that the schemas lack."""


class TokenError(ProtocolError):
    """A SASL token without a readable name; the text contains nothing of the token."""


class TooLargeError(ProtocolError):
    """A message that needs more memory than the reader allows."""
