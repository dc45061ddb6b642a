"""Change a quota through Weir, and see whether a client is throttled."""

from __future__ import annotations

from tests.integration.admin_port import HOST
from tests.raw import NEW, ask, produce
from tests.raw.sasl import SaslConnection
from weir.protocol.messages import AlterClientQuotasRequest, AlterClientQuotasResponse
from weir.quotas.table.quota_table import QuotaKey

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
TIGHT = 1000.0
"""Bytes/s: the second request of `throttled` is over it, whatever the window."""
RECORD_BYTES = 20_000


def alter(port: int, client_id: str, rate: float | None) -> None:
    """As an admin's tool does; None removes the quota."""
    request = AlterClientQuotasRequest
    entry = request.EntryData(
        entity=[request.EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[request.OpData(key=PRODUCE.value, value=rate or 0.0, remove=rate is None)],
    )
    changes = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    answer = ask((HOST, port), changes, AlterClientQuotasResponse, 1)
    assert [entry.error_code for entry in answer.entries] == [0], answer.entries[0].error_message


def throttled(port: int, client_id: str, topic: str) -> bool:
    request = produce(NEW, client_id, topic, RECORD_BYTES)
    with SaslConnection((HOST, port), client_id) as connection:
        for _ in range(2):
            connection.send(request.frame)
            if request.outcome(connection.receive()).throttle_ms:
                return True
    return False
