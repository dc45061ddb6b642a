"""Routes of operations: they check parameters and bodies, and encode results."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weir.proxy.admin.access import may_change
from weir.proxy.admin.api.operation import BODY_BYTES_MAX, ApiState, Call, Operation
from weir.proxy.admin.problems import ProblemError

JSON = "application/json"


def routes(operations: Iterable[Operation], state: ApiState) -> list[Route]:
    """Return one route per path."""
    by_path: defaultdict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in operations:
        by_path[operation.path][operation.method] = operation
    return [Route(path, _page(found, state), methods=list(found)) for path, found in by_path.items()]


def _page(operations: dict[str, Operation], state: ApiState) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        operation = operations["GET" if request.method == "HEAD" else request.method]
        if operation.changes and not may_change(request.scope):
            need = "" if state.has_token else ": set admin_token_file, and restart Weir"
            raise ProblemError(403, f"changes need the header Authorization: Bearer TOKEN{need}")
        peer = "" if request.client is None else f"{request.client.host}:{request.client.port}"
        call = Call(state, _query(operation, request), await _body(operation, request), peer)
        result = msgspec.json.encode(await operation.answer(call))
        return Response(result, headers={"cache-control": "no-store"}, media_type=JSON)

    return page


def _query(operation: Operation, request: Request) -> msgspec.Struct:
    """Return the parameters of a request. Raises ProblemError."""
    given = request.query_params.multi_items()
    numbers = Counter(name for name, _value in given)
    twice = next((name for name, number in numbers.items() if number > 1), None)
    if twice is not None:
        raise ProblemError(400, f"the parameter {twice} is given more than once")
    try:
        return msgspec.convert(dict(given), operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise ProblemError(400, f"a parameter is not allowed: {error}") from None


async def _body(operation: Operation, request: Request) -> msgspec.Struct | None:
    """Return the body of a request; None if the operation has none. Raises ProblemError."""
    if operation.body is None:
        return None
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise ProblemError(415, f"the body must have the content-type {JSON}")
    content = bytearray()
    async with aclosing(request.stream()) as parts:
        async for part in parts:
            content += part
            if len(content) > BODY_BYTES_MAX:
                raise ProblemError(413, f"the body has more than {BODY_BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(content, type=operation.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemError(400, f"the body is not allowed: {error}") from None
