"""Names and ids in the requests of a probe."""

from __future__ import annotations

import re
import secrets
import uuid
from typing import Final

import msgspec

from weir.protocol.values import ZERO_UUID

PREFIX: Final = "weir-probe-"
"""Beginning of every topic, group and transactional id that a probe names."""


class Names(msgspec.Struct, frozen=True):
    """Names and ids of one run. Every name begins with the run's prefix, so that no other run has it."""

    prefix: str
    """"weir-probe-" and eight hexadecimal digits."""
    topic_id: uuid.UUID = ZERO_UUID
    """Id of the scratch topic; zero if the target has no topic ids."""
    node_id: int = 0
    """Id of the broker that is probed."""
    case: str = ""
    """Name of the case that uses these names."""
    version: int = 0
    """Version of the case's request."""

    @classmethod
    def fresh(cls) -> Names:
        """Return names that no other run has."""
        return cls(PREFIX + secrets.token_hex(4))

    @property
    def topic(self) -> str:
        """Name of the scratch topic. It has two partitions."""
        return self.prefix

    @property
    def absent_topic(self) -> str:
        """Name of a topic that does not exist."""
        return f"{self.prefix}-absent"

    @property
    def absent_id(self) -> uuid.UUID:
        """Id of a topic that does not exist."""
        return uuid.uuid5(uuid.NAMESPACE_DNS, self.absent_topic)

    @property
    def group(self) -> str:
        """Id of a group, or of a transaction, that no other case uses."""
        return f"{self.prefix}-{re.sub('[^a-z0-9]+', '-', self.case.lower())}"
