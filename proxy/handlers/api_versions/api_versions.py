"""ApiVersions: clients negotiate versions that both the broker and Weir understand (KIP-35, KIP-511).

Weir limits the versions in the broker's response to those of its schemas, raises them by uplift, removes APIs
that the schemas lack, and adds APIs that Weir answers itself. The response also tells the connection its
broker's versions.

Weir answers an ApiVersions request newer than its schemas as a broker would: error 35, in version 0, with the
supported versions of ApiVersions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from struct import Struct
from typing import Final

from weir.protocol.api import ApiKey, versions
from weir.protocol.codec import codec
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE, LENGTH_BYTES, REQUEST_HEAD, request_body
from weir.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from weir.protocol.versions import VersionRange
from weir.proxy.handlers.api_versions import node_check
from weir.proxy.handlers.broker_query import framed_body, response_frame
from weir.proxy.handlers.decisions import FORWARD, WAIT, Decision, Reply, Wait
from weir.proxy.handlers.plan import Context, Plan, ResponseEdit

_ERROR_CODE = Struct(">h")
"""Struct of the error code, the first field of an ApiVersions response in every version."""
_NO_ERROR: Final = _ERROR_CODE.pack(ErrorCode.NONE)
_SAYS_WHO = 3
"""First version of ApiVersions in which clients send their name (KIP-511). Weir offers the APIs that it adds
only to clients that have sent this version: some older clients (aiokafka) infer the broker's release from
such an API.
"""


SOFTWARE_BYTES_MAX: Final = 1024
"""Maximum length (bytes) of an ApiVersions request whose library name Weir reads. Kafka's clients need 60."""
_SOFTWARE_CHARS_MAX: Final = 48
"""Maximum number of characters that are kept of the library's name, and of its version."""
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?", re.ASCII)
"""Allowed names and versions of libraries (KIP-511); brokers refuse others."""

OWN_REQUEST: Final = 0x5745
"""Error code of Weir's answer to its own request, in version 0: no broker has such a code, and another Weir
forwards it.
"""
VERSIONS_BYTES_MAX: Final = 16 * 1024
"""Maximum length (bytes) of the body of an ApiVersions response: about 2,000 APIs. Kafka 4.2 has 93."""


class ApiVersionsState:
    """State of a connection: the versions of ApiVersions that its client has sent."""

    __slots__ = ("speaks_3",)

    def __init__(self) -> None:
        self.speaks_3 = False
        """True if the client has sent ApiVersions in v3 or later (KIP-511)."""


def plan_api_versions(plan: Plan) -> None:
    """Replace the versions in ApiVersions responses by those that Weir offers: versions that both the broker
    and Weir know, and versions that Weir translates for the broker (uplift). The last result is cached.
    """
    codec_ = codec(ApiVersionsResponse, plan.version)
    cached: tuple[bytes, bytes, dict[int, VersionRange], bool] | None = None

    def rewrite(
        context: Context, data: bytearray, body: int, end: int, complete: bool
    ) -> ResponseEdit | Wait | None:
        nonlocal cached
        if end - body > VERSIONS_BYTES_MAX:
            raise ProtocolError(f"more than {VERSIONS_BYTES_MAX} bytes of versions")
        if not complete:
            return WAIT
        state = context.state_of(ApiVersionsState)
        added = state.speaks_3 = state.speaks_3 or plan.version >= _SAYS_WHO
        if failed(data, body, end):
            return None
        if cached is None or data[body:end] != cached[0] or added != cached[3]:
            message = codec_.decode(data, body, end)
            broker = ranges(message)
            context.meet_broker(broker)
            _tell(message, context.broker_versions.offered(added=added))
            cached = (bytes(data[body:end]), codec_.encode(message), broker, added)
        else:
            context.meet_broker(cached[2])
        return ResponseEdit(body, end, cached[1])

    plan.rewrite = rewrite
    _plan_software(plan, checked=plan.version > node_check.LAYOUT_FROM)


def plan_learn_versions(plan: Plan) -> None:
    """Learn the broker's versions from ApiVersions responses, and leave the responses unchanged: brokers use
    the versions that they tell each other.
    """
    codec_ = codec(ApiVersionsResponse, plan.version)

    def rewrite(context: Context, data: bytearray, body: int, end: int, complete: bool) -> Wait | None:
        if end - body > VERSIONS_BYTES_MAX:
            raise ProtocolError(f"more than {VERSIONS_BYTES_MAX} bytes of versions")
        if not complete:
            return WAIT
        if not failed(data, body, end):
            context.meet_broker(ranges(codec_.decode(data, body, end)))
        return None

    plan.rewrite = rewrite
    _plan_software(plan, checked=False)


def _plan_software(plan: Plan, *, checked: bool) -> None:
    """Keep the name and version of the client's library, which ApiVersions v3 and newer tell (KIP-511). If
    `checked`, also compare the request's node id with the broker's (KIP-1242), and ask an older broker in its
    newest version.

    A request that Weir cannot read is forwarded unchanged.
    """
    if plan.version < _SAYS_WHO:
        return
    codec_, flexible = codec(ApiVersionsRequest, plan.version), plan.flexible_request

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        if not complete:
            (length, *_rest) = REQUEST_HEAD.unpack_from(data, frame)
            longest = min(SOFTWARE_BYTES_MAX, context.buffer_bytes)
            return WAIT if LENGTH_BYTES + length <= longest else FORWARD
        if end - frame <= SOFTWARE_BYTES_MAX:
            try:
                body = request_body(data, frame, end, flexible=flexible)
                told = codec_.decode_request(data, body, end) if body != INCOMPLETE else ApiVersionsRequest()
            except ProtocolError:  # brokers cannot read it either
                return FORWARD
            context.client.software = software(told.client_software_name, told.client_software_version)
            if checked and body != INCOMPLETE:
                return node_check.decide(context, told, plan.version, data, frame, body)
        return FORWARD

    plan.admit = admit


@lru_cache(maxsize=256)
def software(name: str, version: str) -> str:
    """Return the name and version of a client's library as text for operators, such as `librdkafka 2.5.0`;
    empty if the name is not allowed by KIP-511. Connections of one library share the text.
    """
    if _SOFTWARE.fullmatch(name) is None:
        return ""
    known = _SOFTWARE.fullmatch(version) is not None
    return f"{name[:_SOFTWARE_CHARS_MAX]} {version[:_SOFTWARE_CHARS_MAX] if known else ''}".rstrip()


def plan_own_request(plan: Plan, client_id: str) -> None:
    """Answer a request with this client-id: Weir itself has sent it, to find out if an address of a broker
    leads back to Weir.
    """
    forward = plan.admit or _forward

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        found = context.client.client_id(data, frame, end)
        if found is None:
            return WAIT
        if found != client_id:
            return forward(context, data, frame, end, complete)
        if not complete:
            return WAIT
        (*_rest, correlation_id) = REQUEST_HEAD.unpack_from(data, frame)
        answer = ApiVersionsResponse(error_code=OWN_REQUEST)
        return Reply(response_frame(ApiKey.API_VERSIONS, 0, correlation_id, answer))

    plan.admit = admit


def _forward(_context: Context, _data: bytearray, _frame: int, _end: int, _complete: bool) -> Decision | Wait:
    return FORWARD


def failed(data: bytearray, start: int, end: int) -> bool:
    """Return True if the response has an error. Then it tells no versions, and is forwarded unchanged.

    The errors are UNSUPPORTED_VERSION, INVALID_REQUEST, and REBOOTSTRAP_REQUIRED (KIP-1242).
    """
    return data[start : min(start + _ERROR_CODE.size, end)] != _NO_ERROR


def refused(data: bytearray, start: int, end: int) -> bool:
    """Return True if the response says that the broker lacks the requested version of ApiVersions.

    Brokers send such a response in version 0, and list versions of ApiVersions only. librdkafka's mock
    cluster sends the error code alone.
    """
    if end - start < _ERROR_CODE.size:
        return False
    (error_code,) = _ERROR_CODE.unpack_from(data, start)
    return bool(error_code == ErrorCode.UNSUPPORTED_VERSION)


def ranges(answer: ApiVersionsResponse) -> dict[int, VersionRange]:
    """Return the version ranges, by API key, in a broker's ApiVersions response; empty if the response is an
    error.
    """
    if answer.error_code != ErrorCode.NONE:
        return {}
    return {entry.api_key: VersionRange(entry.min_version, entry.max_version) for entry in answer.api_keys}


def _tell(answer: ApiVersionsResponse, offered: Mapping[int, VersionRange]) -> None:
    """Replace the versions in the broker's ApiVersions response by the versions that Weir offers."""
    told = {entry.api_key: entry for entry in answer.api_keys}
    answer.api_keys = [entry for entry in answer.api_keys if entry.api_key in offered]
    answer.api_keys += [
        ApiVersionsResponse.ApiVersion(api_key=api_key) for api_key in offered if api_key not in told
    ]
    for entry in answer.api_keys:
        entry.min_version, entry.max_version = offered[entry.api_key].min, offered[entry.api_key].max


def refuse_version(
    _context: Context, data: bytearray, frame: int, _end: int, complete: bool
) -> Decision | Wait:
    """Answer a request with an unknown version of ApiVersions, once the request is complete."""
    if not complete:
        return WAIT
    (*_rest, correlation_id) = REQUEST_HEAD.unpack_from(data, frame)
    return Reply(framed_body(ApiKey.API_VERSIONS, 0, correlation_id, _refusal()))


@cache
def _refusal() -> bytes:
    ours = versions(ApiKey.API_VERSIONS)
    if ours is None:
        raise AssertionError("the schemas have ApiVersions")
    return codec(ApiVersionsResponse, 0).encode(
        ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=ApiKey.API_VERSIONS, min_version=ours.min, max_version=ours.max
                )
            ],
        )
    )
