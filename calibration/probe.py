"""What tells the cost of requests: the broker's own request quota, set for client-ids of the calibrator's.

Quotas reach a broker some time after they were stored. So one client-id more, the canary, gets a quota that
any request exceeds: when its requests are throttled, the others' quotas are in force, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from calibration.broker_connection import CalibrationError, exchange
from calibration.fixture import CLIENT_ID_START
from protocol.error_codes import ErrorCode
from protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasResponse,
    MetadataRequest,
    MetadataResponse,
)
from proxy.control.cluster.connection import failures
from proxy.control.stores.wire_quotas import EVERYTHING, as_request, imported
from quotas import Entity, QuotaKey
from quotas.calibration import fault, percent_for, spent_us

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from calibration.broker_connection import BrokerConnection
    from calibration.frames import BrokerVersions
    from calibration.run import PendingReading
    from quotas import QuotaTable
    from quotas.calibration import Windows
    from quotas.table import Quota

CANARY_PERCENT: Final = 1e-6
"""Exceeded by any request: of a thread's second, 0.1 µs in 10 s."""
IN_FORCE_S: Final = 15.0
_STEP_S: Final = 0.05
_SETTLE_S: Final = 0.1
"""After the canary's, the others' are in force: brokers apply them one by one."""
BYTE_RATE: Final = float(1 << 50)
"""No limit that anybody reaches: bandwidth quotas that are for everybody must not throttle, too."""
_BYTE_RATES: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
_DENIED: Final = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED})


class QuotaProbe:
    """Ends with `disarm`, whatever has happened."""

    until_throttled = True
    gather_s = 0.0

    def __init__(self, connection: BrokerConnection, broker_versions: BrokerVersions, user: str) -> None:
        """`user` is who we are to the broker."""
        self._connection = connection
        self._broker_versions = broker_versions
        self._user = user
        self._of_user = False
        self._keys: tuple[QuotaKey, ...] = (QuotaKey.REQUEST_PERCENTAGE,)
        self._mine: set[Quota] = set()

    async def look(self) -> list[Quota]:
        """See which quotas there are, and return what an earlier run has left. Raises CalibrationError if
        there cannot be any here, QuestionError.
        """
        request = self._broker_versions.request(EVERYTHING)
        if request is None or self._broker_versions.request(AlterClientQuotasRequest()) is None:
            raise CalibrationError(
                f"{self._connection.address}: brokers before 2.6 take no quotas over the wire (AlterClientQuotas): "
                "use --jmx-prometheus URL, or the shipped figures with request_time_scale"
            )
        answer = await self._connection.ask(request, DescribeClientQuotasResponse)
        if answer.error_code in _DENIED:
            raise CalibrationError(_no_right(self._connection, "DESCRIBE_CONFIGS"))
        if answer.error_code != ErrorCode.NONE:
            raise CalibrationError(
                f"{self._connection.address}: it answers DescribeClientQuotas with error {answer.error_code}"
            )
        return self._adapt(imported(answer).table)

    def _adapt(self, table: QuotaTable) -> list[Quota]:
        """A user's quota goes before a client-id's; a bandwidth quota throttles as well."""
        left = [quota for quota in table.values if _is_ours(quota[0])]
        others = [quota for quota in table.values if not _is_ours(quota[0])]
        relevant = {QuotaKey.REQUEST_PERCENTAGE, *_BYTE_RATES}
        self._of_user = any(entity.user is not None and key in relevant for entity, key in others)
        if any(key in _BYTE_RATES for _entity, key in others):
            self._keys = (QuotaKey.REQUEST_PERCENTAGE, *_BYTE_RATES)
        return left

    def entity(self, client_id: str) -> Entity:
        """Whom quotas are set for."""
        return Entity(self._user if self._of_user else None, client_id)

    async def arm(self, wanted: Mapping[str, float], canary: str, windows: Windows) -> None:
        """Have the broker throttle each client-id when it has pending the wanted time, in µs, instead of all
        earlier ones. Raises CalibrationError, QuestionError.
        """
        changes: dict[Quota, float | None] = dict.fromkeys(self._mine)
        percents = {client_id: percent_for(us, windows) for client_id, us in wanted.items()}
        for client_id, percent in {**percents, canary: CANARY_PERCENT}.items():
            for key in self._keys:
                rate = percent if key is QuotaKey.REQUEST_PERCENTAGE else BYTE_RATE
                changes[self.entity(client_id), key] = rate
        before, self._mine = self._mine, {quota for quota, rate in changes.items() if rate is not None}
        self._mine |= before  # until the broker has said so, both may be there
        await self._alter(changes)
        self._mine -= before
        await self._in_force(canary)

    async def costs_us(self, pending: Sequence[PendingReading], windows: Windows) -> list[float | str]:
        """What time each has pending, in µs, or why that is not known."""
        return [_cost_us(one, windows) for one in pending]

    async def disarm(self) -> None:
        """Remove all that was set. Raises CalibrationError, QuestionError."""
        await self.remove(self._mine)
        self._mine = set()

    async def remove(self, quotas: Iterable[Quota]) -> None:
        """Raises CalibrationError, QuestionError."""
        changes: dict[Quota, float | None] = dict.fromkeys(quotas)
        if changes:
            await self._alter(changes)

    async def _alter(self, changes: Mapping[Quota, float | None]) -> None:
        request = self._broker_versions.request(as_request(changes))
        if request is None:
            raise CalibrationError(f"{self._connection.address}: it has no AlterClientQuotas")
        answer = await self._connection.ask(request, AlterClientQuotasResponse)
        for entry in answer.entries:
            if entry.error_code in _DENIED:
                raise CalibrationError(_no_right(self._connection, "ALTER_CONFIGS"))
            if entry.error_code != ErrorCode.NONE:
                said = " ".join((entry.error_message or f"error {entry.error_code}").split())[:200]
                raise CalibrationError(
                    f"{self._connection.address}: it refuses a quota of the calibrator's: {said}"
                )

    async def _in_force(self, canary: str) -> None:
        request = self._broker_versions.request(MetadataRequest(topics=[]))
        assert request is not None, "every broker has Metadata"
        deadline_s = trio.current_time() + IN_FORCE_S
        async with await self._connection.connect() as connection:
            while trio.current_time() < deadline_s:
                with failures(self._connection.address, self._connection.timeout_s):
                    answer = await exchange(
                        connection.stream, request, MetadataResponse, self._connection.timeout_s, canary
                    )
                if answer.throttle_time_ms > 0:
                    await trio.sleep(_SETTLE_S)
                    return
                await trio.sleep(_STEP_S)
        raise CalibrationError(
            f"{self._connection.address}: a request quota of {self.entity(canary)} is not enforced: is another "
            "quota in its way (upstream_sasl_username says who Weir is), or is this no broker but a proxy?"
        )


def _cost_us(pending: PendingReading, windows: Windows) -> float | str:
    reading = pending.result.reading
    reason = fault(reading, windows)
    if reason is not None:
        return reason
    percent = percent_for(pending.wanted_us, windows)
    return spent_us(percent, reading.throttle_ms, reading.elapsed_s, windows)


def _is_ours(entity: Entity) -> bool:
    return isinstance(entity.client_id, str) and entity.client_id.startswith(CLIENT_ID_START)


def _no_right(connection: BrokerConnection, operation: str) -> str:
    return (
        f"{connection.address}: Weir's user has no right to {operation} on the cluster, which setting a request "
        "quota for the calibrator needs: allow it, or use --jmx-prometheus URL"
    )
