"""All operations of the API, and their routes."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weir.proxy.admin.api import brokers, connections, entities, openapi, quotas, reports, routing, status
from weir.proxy.admin.api.operation import ApiState, Operation

OPERATIONS: Final[tuple[Operation, ...]] = (
    *status.OPERATIONS,
    *entities.OPERATIONS,
    *connections.OPERATIONS,
    *brokers.OPERATIONS,
    *quotas.OPERATIONS,
    *reports.OPERATIONS,
)


def routes(state: ApiState) -> list[Route]:
    """Return the routes of all operations, and of their description."""
    described = msgspec.json.encode(openapi.describe(OPERATIONS))

    async def description(_request: Request) -> Response:
        return Response(described, media_type=routing.JSON)

    return [*routing.routes(OPERATIONS, state), Route(openapi.PATH, description, methods=["GET"])]
