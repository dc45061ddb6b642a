"""Read request costs from throttle times: request quotas of the calibrator's client-ids make the broker
throttle.

A broker applies quotas some time after they were stored. Therefore one more client-id, called the canary,
gets a quota that any request exceeds. Once the broker throttles the canary, all quotas that were stored
together with the canary's quota are in force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from weir.calibration.broker_connection import CalibrationError, exchange
from weir.calibration.fixture import CLIENT_ID_START
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasResponse,
    MetadataRequest,
    MetadataResponse,
)
from weir.proxy.control.cluster.connection import failures
from weir.proxy.control.stores.wire_quotas import EVERYTHING, as_request, imported
from weir.quotas import Entity, QuotaKey
from weir.quotas.costs.calibration import fault, percent_for, spent_us
from weir.quotas.table.quota_kind import BYTE_RATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weir.calibration.broker_connection import BrokerConnection
    from weir.calibration.frames import NodeApiVersions
    from weir.calibration.run import PendingReading
    from weir.quotas import QuotaTable
    from weir.quotas.costs.calibration import Windows
    from weir.quotas.table.quota_table import Quota

CANARY_PERCENT: Final = 1e-6
"""Request quota (percent of a thread) of the canary, a client-id whose throttling shows that the broker
enforces new quotas. Any request exceeds this quota: it is 0.1 µs in 10 s.
"""
IN_FORCE_S: Final = 15.0
_STEP_S: Final = 0.05
_SETTLE_S: Final = 0.1
"""Time (s) to wait after the broker has throttled the canary (the client-id with a tiny quota) for the first
time, because a broker applies new quotas one by one.
"""
BYTE_RATE: Final = float(1 << 50)
"""Byte rate quota (bytes/s) that no client reaches. It overrides default bandwidth quotas, which would also
throttle the calibrator.
"""
_DENIED: Final = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED})


class QuotaProbe:
    """Sets request quotas for the calibrator's client-ids, and computes costs from throttle times. Call
    `disarm` at the end, also after a failure.
    """

    until_throttled = True
    gather_s = 0.0

    def __init__(self, connection: BrokerConnection, broker_versions: NodeApiVersions, user: str) -> None:
        """Keep the arguments; `user` is the principal under which the broker knows Weir. Send nothing."""
        self._connection = connection
        self._broker_versions = broker_versions
        self._user = user
        self._of_user = False
        self._keys: tuple[QuotaKey, ...] = (QuotaKey.REQUEST_PERCENTAGE,)
        self._mine: set[Quota] = set()

    async def look(self) -> list[Quota]:
        """Read all of the broker's quotas; return those that an earlier run of the calibrator left behind.
        Raises CalibrationError if the broker does not let Weir read or set quotas, QuestionError.
        """
        request = self._broker_versions.request(EVERYTHING)
        if request is None or self._broker_versions.request(AlterClientQuotasRequest()) is None:
            raise CalibrationError(
                f"{self._connection.address}: brokers before 2.6 accept no quotas over the wire "
                "(AlterClientQuotas): use --jmx-prometheus URL, or the shipped costs with request_time_scale"
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
        """Choose entities and keys of the calibrator's own quotas so that they outrank all other quotas in
        `table`, and so that no byte rate quota throttles the calibrator. Return the quotas in `table` that an
        earlier run of the calibrator left behind.
        """
        left = [quota for quota in table.values if _is_ours(quota[0])]
        others = [quota for quota in table.values if not _is_ours(quota[0])]
        relevant = {QuotaKey.REQUEST_PERCENTAGE, *BYTE_RATES}
        self._of_user = any(entity.user is not None and key in relevant for entity, key in others)
        if any(key in BYTE_RATES for _entity, key in others):
            self._keys = (QuotaKey.REQUEST_PERCENTAGE, *BYTE_RATES)
        return left

    def entity(self, client_id: str) -> Entity:
        """Return the entity that gets the quota of a client-id: the pair of Weir's user and the client-id if
        any quota is set by user, because such a quota would outrank one of the client-id alone.
        """
        return Entity(self._user if self._of_user else None, client_id)

    async def arm(self, wanted: Mapping[str, float], canary: str, windows: Windows) -> None:
        """Replace all request quotas of this probe, so that the broker throttles each client-id after it has
        used its time (µs) in `wanted`; wait until the broker enforces the quotas. `canary`: client-id that is
        throttled at once, which shows that the quotas are enforced. Raises CalibrationError if the broker
        refuses the quotas or does not enforce them within `IN_FORCE_S`, QuestionError.
        """
        changes: dict[Quota, float | None] = dict.fromkeys(self._mine)
        percents = {client_id: percent_for(us, windows) for client_id, us in wanted.items()}
        for client_id, percent in {**percents, canary: CANARY_PERCENT}.items():
            for key in self._keys:
                rate = percent if key is QuotaKey.REQUEST_PERCENTAGE else BYTE_RATE
                changes[self.entity(client_id), key] = rate
        before, self._mine = self._mine, {quota for quota, rate in changes.items() if rate is not None}
        self._mine |= before  # the old and the new quotas may exist until the broker confirms
        await self._alter(changes)
        self._mine -= before
        await self._in_force(canary)

    async def costs_us(self, pending: Sequence[PendingReading], windows: Windows) -> list[float | str]:
        """Return, for each finished load in `pending` (a request that was sent until the broker throttled
        it), the broker's time (µs) that its requests took, or the reason why the time is unknown.
        """
        return [_cost_us(one, windows) for one in pending]

    async def disarm(self) -> None:
        """Remove all quotas that `arm` has set. Raises CalibrationError, QuestionError."""
        await self.remove(self._mine)
        self._mine = set()

    async def remove(self, quotas: Iterable[Quota]) -> None:
        """Remove these quotas from the broker. Raises CalibrationError, QuestionError."""
        changes: dict[Quota, float | None] = dict.fromkeys(quotas)
        if changes:
            await self._alter(changes)

    async def _alter(self, changes: Mapping[Quota, float | None]) -> None:
        request = self._broker_versions.request(as_request(changes))
        if request is None:
            raise CalibrationError(f"{self._connection.address}: the broker has no AlterClientQuotas")
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
            f"{self._connection.address}: a request quota of {self.entity(canary)} is not enforced: does "
            "another quota outrank it (upstream_sasl_username names Weir's user), or is this a proxy?"
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
        f"{connection.address}: Weir's user has no right to {operation} on the cluster, which request "
        "quotas for the calibrator need: allow it, or use --jmx-prometheus URL"
    )
