"""Errors of decoding and encoding."""

from __future__ import annotations


class ProtocolError(Exception):
    """Raised for bytes that are not Kafka's protocol, and for a message that cannot be encoded. `api` is the
    message's name ("MetadataResponse"), "" if unknown. `version`, and `offset` (bytes from the start of the
    buffer), are -1 if unknown. `str()` includes the known ones of these three.
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
    """Raised for a message that this version cannot express. `field` is the path of the field that cannot be
    encoded ("topics.partitions.leader_epoch").
    """

    def __init__(self, reason: str, *, field: str, api: str = "", version: int = -1) -> None:
        super().__init__(reason, api=api, version=version)
        self.field = field

    def __str__(self) -> str:
        message = f"{self.api} v{self.version}, " if self.api else ""
        return f"{message}field {self.field}: {self.reason}"


class UnencodableError(ProtocolError):
    """Raised for a request that brokers can read but that cannot be encoded again: a string is not UTF-8, and
    with replacement characters for the invalid bytes it is too long.
    """


class OversizedError(UnencodableError):
    """Raised for a request with more elements, numbers or tagged fields than Weir reads; a broker can read
    it.
    """


class UnknownVersionError(ProtocolError):
    """Raised for an API or a version that the schemas lack."""


class TokenError(ProtocolError):
    """Raised for a SASL token without a readable name. The message contains nothing of the token."""


class TooLargeError(ProtocolError):
    """Raised for a message that is larger than the number of bytes that its reader may keep in memory."""
