"""What Java calls the subject of a certificate, and Kafka its owner: the oracle of `proxy.net.tls`."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

from tests.java.worker import run_java

if TYPE_CHECKING:
    from collections.abc import Sequence


class Names(NamedTuple):
    subjects: list[str]
    names: list[str | None]
    """None where Kafka fails."""


def ask_java(release: str, *, names: Sequence[bytes] = (), mappings: Sequence[tuple[str, str]] = ()) -> Names:
    """Have Java write DER names, and Kafka map subjects: (rules, subject)."""
    job = {"names": [base64.b64encode(name).decode() for name in names], "mappings": list(mappings)}
    return Names(**run_java(release, "names_worker", "Java's names by Kafka", job))
