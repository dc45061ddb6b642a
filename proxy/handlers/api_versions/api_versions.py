"""ApiVersions: a client negotiates only what both the broker and Weir understand (KIP-35, KIP-511).

The broker's answer is cut down to the versions that Weir's schemas know, and raised to what uplift adds; an
API that they do not know is left out, and one that Weir answers by itself is added. From here on the session
knows which versions its broker speaks.
A client that asks in a version newer than Weir knows is answered by Weir as a broker would: error 35, in
version 0, naming the versions of ApiVersions itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from struct import Struct

from protocol.api import ApiKey, versions
from protocol.codec import codec
from protocol.error_codes import ErrorCode
from protocol.heads import LENGTH_BYTES, REQUEST_HEAD, RESPONSE_HEAD
from protocol.messages import ApiVersionsResponse
from protocol.versions import VersionRange
from proxy.handlers.decisions import WAIT, Decision, Reply, Wait
from proxy.handlers.plan import Context, Plan, ResponseEdit
from proxy.handlers.topics.topic_rates import capped

_ERROR_CODE = Struct(">h")
"""The first field of an ApiVersions response in every version."""
_SAYS_WHO = 3
"""From this version on clients say what they are (KIP-511). Of those that have asked in no such version, some
take an API that Weir adds for the sign of a newer broker, as aiokafka does: they are not told of it.
"""


def plan_api_versions(plan: Plan) -> None:
    """Tell clients what the broker and Weir both speak; the last answer is remembered."""
    codec_ = codec(ApiVersionsResponse, plan.version)
    remembered: tuple[bytes, bytes, dict[int, VersionRange], tuple[bool, bool]] | None = None

    def rewrite(
        context: Context, data: bytearray, body: int, end: int, complete: bool
    ) -> ResponseEdit | Wait | None:
        nonlocal remembered
        if not complete:
            return WAIT
        context.newest = context.newest or plan.version >= _SAYS_WHO
        if refused(data, body, end):
            return None
        named, added = kind = context.quotas.topics is not None, context.newest
        if remembered is None or data[body:end] != remembered[0] or kind != remembered[3]:
            message = codec_.decode(data, body, end)
            broker = ranges(message)
            context.meet_broker(broker)
            offered = context.dialect.offered(added=added)
            _tell(message, capped(offered) if named else offered)
            remembered = (bytes(data[body:end]), codec_.encode(message), broker, kind)
        else:
            context.meet_broker(remembered[2])
        return ResponseEdit(body, end, remembered[1])

    plan.rewrite = rewrite


def refused(data: bytearray, start: int, end: int) -> bool:
    """Whether the broker does not know the version that was asked.

    Such an answer is for the client alone: it names versions of ApiVersions only, and one that Weir does not
    know is answered by Weir itself. Brokers answer in version 0, librdkafka's mock cluster in none at all.
    """
    if end - start < _ERROR_CODE.size:
        return False
    (error_code,) = _ERROR_CODE.unpack_from(data, start)
    return bool(error_code == ErrorCode.UNSUPPORTED_VERSION)


def ranges(answer: ApiVersionsResponse) -> dict[int, VersionRange]:
    """Return what a broker says it speaks, by API key; nothing if it says an error."""
    if answer.error_code != ErrorCode.NONE:
        return {}
    return {entry.api_key: VersionRange(entry.min_version, entry.max_version) for entry in answer.api_keys}


def _tell(answer: ApiVersionsResponse, offered: Mapping[int, VersionRange]) -> None:
    """Put what is offered into the broker's answer."""
    told = {entry.api_key: entry for entry in answer.api_keys}
    answer.api_keys = [entry for entry in answer.api_keys if entry.api_key in offered]
    answer.api_keys += [
        ApiVersionsResponse.ApiVersion(api_key=api_key) for api_key in offered if api_key not in told
    ]
    for entry in answer.api_keys:
        entry.min_version, entry.max_version = offered[entry.api_key].min, offered[entry.api_key].max


def refuse_version(
    _caller: Context, data: bytearray, frame: int, _end: int, complete: bool
) -> Decision | Wait:
    """Answer in the broker's place, once the request is here as a whole."""
    if not complete:
        return WAIT
    (*_rest, correlation_id) = REQUEST_HEAD.unpack_from(data, frame)
    body = _refusal()
    return Reply(RESPONSE_HEAD.pack(LENGTH_BYTES + len(body), correlation_id) + body)


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
