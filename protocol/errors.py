"""What is wrong with bytes from a peer, or with a message that should become bytes."""

from __future__ import annotations


class ProtocolError(Exception):
    """Bytes that are not Kafka's protocol, or a message that Kafka's protocol has no bytes for.

    `api` is the message's name ("MetadataResponse") or empty; `version` and `offset` (bytes from the start
    of the buffer that was read) are -1 where they mean nothing. `str()` says all that is known.
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
    """A message that has no bytes in this version: `field` ("topics.partitions.leader_epoch") says where."""

    def __init__(self, reason: str, *, field: str, api: str = "", version: int = -1) -> None:
        super().__init__(reason, api=api, version=version)
        self.field = field

    def __str__(self) -> str:
        message = f"{self.api} v{self.version}, " if self.api else ""
        return f"{message}field {self.field}: {self.reason}"


class UnencodableError(ProtocolError):
    """A request that a broker reads, but that cannot be written anew: its text is no UTF-8, and too long once
    the wrong bytes are replaced.
    """


class UnknownVersionError(ProtocolError):
    """An API, or a version of it, that the schemas do not know."""


class TokenError(ProtocolError):
    """A SASL token in which no name can be read; the text has nothing of the token."""


class TooLargeError(ProtocolError):
    """A message of which more would have to be kept in memory than the reader allows."""
