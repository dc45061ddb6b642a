"""A small server that speaks some of Kafka's APIs, and whose handlers a test can replace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kfake.cluster import up_to
from tests.kfake.controller import NODE, Controller
from tests.kfake.threads import Brokers
from weir.protocol.api import ApiKey

if TYPE_CHECKING:
    import ssl


def stub_target(tls: ssl.SSLContext | None = None) -> Brokers:
    """The server, on a free port of this machine, in a `with` block."""
    spoken = {ApiKey.METADATA: 9, ApiKey.API_VERSIONS: 3, ApiKey.CREATE_TOPICS: 5, ApiKey.DELETE_TOPICS: 4}
    return Brokers(Controller(spoken=up_to(spoken), creates=False, tls=tls), [NODE])
