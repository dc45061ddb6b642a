"""ApiVersions: a client negotiates only what both the broker and Weir understand (KIP-35, KIP-511).

The broker's answer is cut down to the versions that Weir's schemas know; an API they do not know is left out.
A client that asks in a version newer than Weir knows is answered by Weir as a broker would: error 35, in
version 0, naming the versions of ApiVersions itself.
"""

from __future__ import annotations

from struct import Struct

from protocol.api import ApiKey, versions
from protocol.codec import codec
from protocol.error_codes import ErrorCode
from protocol.heads import LENGTH_BYTES, REQUEST_HEAD, RESPONSE_HEAD
from protocol.messages import ApiVersionsResponse
from proxy.plan import WAIT, Admission, Caller, Plan, Splice, Wait

_ERROR_CODE = Struct(">h")
"""The first field of an ApiVersions response in every version."""


def plan_api_versions(plan: Plan) -> None:
    """Intersect the broker's answer with what Weir understands; the last answer is remembered."""
    seen, answer = b"", b""

    def rewrite(
        _caller: Caller, data: bytearray, body: int, end: int, complete: bool
    ) -> Splice | Wait | None:
        nonlocal seen, answer
        if not complete:
            return WAIT
        if _refused(data, body, end):
            return None
        if data[body:end] != seen:
            seen, answer = bytes(data[body:end]), _intersected(data, body, end, plan.version)
        return Splice(body, end, answer)

    plan.rewrite = rewrite


def _refused(data: bytearray, start: int, end: int) -> bool:
    """Whether the broker does not know the version that was asked.

    Such an answer is for the client alone: it names versions of ApiVersions only, and one that Weir does not
    know is answered by Weir itself. Brokers answer in version 0, librdkafka's mock cluster in none at all.
    """
    if end - start < _ERROR_CODE.size:
        return False
    (error_code,) = _ERROR_CODE.unpack_from(data, start)
    return bool(error_code == ErrorCode.UNSUPPORTED_VERSION)


def _intersected(data: bytearray, start: int, end: int, version: int) -> bytes:
    """Return the body of the answer that the client is to see. Raises ProtocolError."""
    codec_ = codec(ApiVersionsResponse, version)
    message = codec_.decode(data, start, end)
    message.api_keys = [entry for entry in message.api_keys if _cut_down(entry)]
    return codec_.encode(message)


def _cut_down(entry: ApiVersionsResponse.ApiVersion) -> bool:
    """Narrow an API's range to what Weir understands; False if nothing is left."""
    ours = versions(entry.api_key)
    if ours is None:
        return False
    entry.min_version = max(entry.min_version, ours.min)
    entry.max_version = min(entry.max_version, ours.max)
    return entry.min_version <= entry.max_version


def refuse_version(
    _caller: Caller, data: bytearray, frame: int, _end: int, complete: bool
) -> Admission | Wait:
    """Answer in the broker's place, once the request is here as a whole."""
    if not complete:
        return WAIT
    (*_rest, correlation_id) = REQUEST_HEAD.unpack_from(data, frame)
    ours = versions(ApiKey.API_VERSIONS)
    if ours is None:
        raise AssertionError("the schemas have ApiVersions")
    body = codec(ApiVersionsResponse, 0).encode(
        ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=ApiKey.API_VERSIONS, min_version=ours.min, max_version=ours.max
                )
            ],
        )
    )
    return Admission(reply=RESPONSE_HEAD.pack(LENGTH_BYTES + len(body), correlation_id) + body)
