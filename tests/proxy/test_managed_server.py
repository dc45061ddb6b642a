"""Client quotas asked of a whole server, over real sockets: file, quota manager, connections, quotas."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import trio

from tests.proxy.client_quotas import alter, describe, entry, results
from tests.proxy.stage import Stage
from tests.quotas.changes import put_in_force
from tests.scripted import staged
from tests.wire.frames import body_of, request
from weir.protocol.messages import (
    AlterClientQuotasResponse,
    DescribeClientQuotasResponse,
    ProduceRequest,
    ProduceResponse,
)
from weir.proxy.control.stores.file import FileStore, read_quota_file
from weir.proxy.control.stores.quota_manager import QuotaManager
from weir.proxy.control.stores.store import StoreHealth
from weir.quotas import Entity, QuotaKey, QuotaTable

PRODUCE: Final = QuotaKey.PRODUCER_BYTE_RATE
CHANGE: Final = alter(entry({"client-id": "app"}, {"producer_byte_rate": 1000.0}))
CHANGED: Final = QuotaTable({(Entity(client_id="app"), PRODUCE): 1000.0})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "quotas.toml"
    found.write_text("# ours\n")
    return found


async def manage(stage: Stage, path: Path) -> QuotaManager:
    store = FileStore(path)
    table = store.start()
    put_in_force(stage.server.quotas, table)
    state, supervisor = StoreHealth(lambda: 0.0), stage.server.supervisor
    admins = stage.server.config.admins
    quota_manager = QuotaManager(store, stage.server.quotas, table, admins, state, supervisor)
    stage.pool._manager = quota_manager
    await stage.nursery.start(quota_manager.run)
    return quota_manager


def produced(answer: bytes | None) -> int:
    assert answer is not None
    return body_of(answer, ProduceResponse, 7).throttle_time_ms


@staged(quota_admins="User:ANONYMOUS")
async def test_a_quota_alteration_is_written_and_applies_to_open_connections(
    stage: Stage, path: Path
) -> None:
    produce = request(ProduceRequest(acks=1, transactional_id="x" * 30_000), 7)
    quota_manager = await manage(stage, path)
    client, admin = await stage.connect(0), await stage.connect()
    assert produced(await client.ask(produce)) == 0
    answer = await admin.ask(request(CHANGE, 1))
    assert answer is not None
    assert results(body_of(answer, AlterClientQuotasResponse, 1)) == [({"client-id": "app"}, 0, None)]
    assert read_quota_file(path) == CHANGED == quota_manager.table
    assert produced(await client.ask(produce)) > 10_000


@staged(quota_admins="User:ANONYMOUS")
async def test_concurrent_admins_lose_no_quota_change(stage: Stage, path: Path) -> None:
    await manage(stage, path)

    async def change(number: int) -> None:
        admin = await stage.connect()
        message = alter(entry({"user": f"u{number}"}, {"producer_byte_rate": float(number)}))
        answer = await admin.ask(request(message, 1))
        assert answer is not None
        assert [code for _entity, code, _text in results(body_of(answer, AlterClientQuotasResponse, 1))] == [
            0
        ]

    async with trio.open_nursery() as nursery:
        for number in range(1, 21):
            nursery.start_soon(change, number)
    assert read_quota_file(path) == QuotaTable(
        {(Entity(user=f"u{number}"), PRODUCE): float(number) for number in range(1, 21)}
    )


@staged(quota_admins="User:admin")
async def test_a_user_who_is_no_admin_alters_no_quota(stage: Stage, path: Path) -> None:
    quota_manager = await manage(stage, path)
    client = await stage.connect()
    answer = await client.ask(request(CHANGE, 1))
    assert answer is not None
    assert [found.error_code for found in body_of(answer, AlterClientQuotasResponse, 1).entries] == [31]
    answer = await client.ask(request(describe(), 1))
    assert answer is not None
    assert body_of(answer, DescribeClientQuotasResponse, 1).error_code == 31
    assert (quota_manager.table, stage.server.quotas.table) == (QuotaTable(), QuotaTable())
