"""Throttle times that a response causes and tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.protocol.api import ApiKey
from weir.protocol.framing import INCOMPLETE
from weir.proxy.handlers.api_versions.api_versions import refused

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection
    from weir.proxy.handlers.plan import Plan, ResponseEdit
    from weir.quotas import QuotaKey

_API_VERSIONS: Final = ApiKey.API_VERSIONS.value
_THROTTLE_BYTES: Final = 4
"""Size (bytes) of the field `throttle_time_ms`."""


def mute(connection: Connection, quota: QuotaKey, throttle_ms: int, counted_as: int) -> int:
    """Take no requests from the client for `throttle_ms`, because the current response exceeds a quota.
    Record the throttle time as usage. Return the time (ms) at which the throttle ends.
    """
    until_ms = connection.mute(throttle_ms, quota)
    if connection.client.usage is not None:
        connection.client.usage.throttled(counted_as, until_ms - connection.now_ms)
    return until_ms


def report(connection: Connection, plan: Plan, data: bytearray, body: int, end: int, complete: bool) -> bool:
    """Write Weir's throttle time into the response, unless the broker's throttle time there is longer. If
    the version has no field for it, have the client's next response tell the throttle time.

    Return False if the bytes of the field have not arrived yet.
    """
    if plan.throttle is None:
        connection.tell_next(connection.now_ms + connection.response.report_ms)
        return True
    if plan.api_key == _API_VERSIONS and refused(data, body, end):
        return True  # brokers refuse a version of ApiVersions in the layout of version 0
    throttle, offset = plan.throttle, plan.throttle.fixed_offset
    if offset is not None and body + offset + _THROTTLE_BYTES <= end:  # `locate` without its call
        position = body + offset
    elif offset is None and not complete:
        return False  # near the end of the response: a search at each arrival would be quadratic
    elif (position := throttle.locate(data, body, end, complete)) == INCOMPLETE:
        return False
    throttle.raise_to(data, position, connection.response.report_ms)
    return True


def growth(connection: Connection, edit: ResponseEdit) -> int:
    """Return the number of bytes by which the edit lengthens the current response, and count these bytes
    as usage.
    """
    grown_bytes = len(edit.replacement) - (edit.stop - edit.start)
    usage = connection.client.usage
    if usage is not None and grown_bytes:
        usage.grown(grown_bytes)
    return grown_bytes
