"""Ask a broker for its API versions: one ApiVersions request on a connection of its own."""

from __future__ import annotations

from typing import Final

from protocol.error_codes import ErrorCode
from protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from protocol.versions import VersionRange
from proxy.addresses import Address
from proxy.control.cluster.access import DIRECT, Access
from proxy.control.cluster.connection import QuestionError
from proxy.control.cluster.question import ask
from proxy.handlers.api_versions.api_versions import ranges

API_VERSIONS_VERSION: Final = 0
"""Every broker from 0.10 on has this version, which lists the same ranges as later ones."""


async def ask_versions(
    address: Address, timeout_s: float, access: Access = DIRECT
) -> dict[int, VersionRange]:
    """Return a broker's versions by API key. Raises QuestionError."""
    answer = await ask(
        address, ApiVersionsRequest(), ApiVersionsResponse, API_VERSIONS_VERSION, timeout_s, access
    )
    if answer.error_code != ErrorCode.NONE:
        text = f"{address}: it answers ApiVersions with error {answer.error_code}"
        raise QuestionError(text, reachable=True, foreign=False)
    return ranges(answer)
