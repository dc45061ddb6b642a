"""A stub broker that asks for a login: `python -m tests.night.broker accept|refuse PORT NODES NODE`."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from tests.attacks import stub
from tests.hostile.broker import Sound
from tests.kafka.settings import HOST
from tests.wire.frames import head_of, response
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import SaslAuthenticateResponse, SaslHandshakeResponse

REFUSED: Final = SaslAuthenticateResponse(
    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
    error_message="Authentication failed: Invalid username or password",
)


class Guarded(stub.Broker):
    """Answers as the stub does. It accepts all passwords, or none."""

    def __init__(self, port: int, nodes: int, *, accepts: bool) -> None:
        super().__init__(port, nodes)
        self._accepts = accepts

    def answer(self, frame: bytes) -> bytes:
        """Return the response."""
        head = head_of(frame)
        if head.api_key == ApiKey.SASL_HANDSHAKE:
            return response(SaslHandshakeResponse(mechanisms=["PLAIN"]), head.version, head.correlation_id)
        if head.api_key == ApiKey.SASL_AUTHENTICATE:
            said = SaslAuthenticateResponse() if self._accepts else REFUSED
            return response(said, head.version, head.correlation_id)
        return super().answer(frame)


async def serve(port: int, nodes: int, node: int, *, accepts: bool) -> None:
    """Be this broker, for ever."""
    broker = Guarded(port, nodes, accepts=accepts)
    await asyncio.get_running_loop().create_server(lambda: Sound(broker.answer), HOST, port + node)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[2:]), accepts=sys.argv[1] == "accept"))
