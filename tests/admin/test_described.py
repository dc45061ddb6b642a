"""The description of the API: schemathesis sends requests that fit it, and others, and checks the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import schemathesis
import trio
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from tests.admin.stage import Stage, play, play_with
from tests.kfake.cluster import HOST
from tests.scripted import scripted
from weir.proxy.admin.api.openapi import PATH, TEXTS
from weir.proxy.admin.api.resources import OPERATIONS
from weir.proxy.control.events.records import KINDS
from weir.proxy.control.snapshots import records

EXAMPLES: Final = 10
"""Number of requests for each operation and way of making requests."""
TOKEN: Final = "a-token-for-schemathesis"  # noqa: S105


def conforms(port: int, path: str) -> int:
    """Send requests to all operations of a path; return their number. Raises AssertionError if an answer does
    not fit the description.
    """
    schema: Any = schemathesis.openapi.from_url(f"http://{HOST}:{port}/openapi.json").include(path=path)
    number = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        number += 1
        _check(operation, schemathesis.GenerationMode.POSITIVE)
        described = operation.definition.raw
        if described.get("parameters") or "requestBody" in described:  # else nothing can be wrong
            _check(operation, schemathesis.GenerationMode.NEGATIVE)
    return number


def _check(operation: Any, mode: schemathesis.GenerationMode) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def requests_are_answered_as_described(case: Any) -> None:
        # `ignored_auth` repeats requests with these headers, so with the token; test_access.py checks access.
        has_body = "requestBody" in operation.definition.raw
        answer = case.call_and_validate(
            headers={"authorization": f"Bearer {TOKEN}"},
            excluded_checks=[ignored_auth, *([positive_data_acceptance] if has_body else [])],
        )
        if has_body and mode is schemathesis.GenerationMode.POSITIVE:  # quotas have rules beyond their form
            assert answer.status_code in (200, 409, 422), answer.text

    requests_are_answered_as_described()


PATHS: Final = sorted({operation.path for operation in OPERATIONS} | {*TEXTS, PATH})


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_all_answers_fit_the_description_of_the_api(path: str, tmp_path: Path) -> None:
    quotas, token = tmp_path / "quotas.toml", tmp_path / "token"
    quotas.write_text("")
    token.write_text(TOKEN)

    async def script(stage: Stage) -> None:
        await stage.start()
        budget = stage.server.quotas.of(0).ledger("alice", "etl", stage.server.now_ms)
        assert budget is not None
        assert await trio.to_thread.run_sync(conforms, stage.admin, path) >= 1

    play_with(script, quotas, admin_token_file=str(token))


@scripted(play)
async def test_the_description_has_every_field_of_the_records(stage: Stage) -> None:
    described = (await stage.json("/openapi.json"))["components"]["schemas"]
    for kind in (
        records.Status,
        records.EntityRecord,
        records.ConnectionRecord,
        records.Broker,
        records.Quota,
    ):
        fields = {field.encode_name for field in msgspec.structs.fields(kind)}
        assert set(described[kind.__name__]["properties"]) == fields
        assert set(described[kind.__name__]["required"]) == fields


@scripted(play)
async def test_every_path_of_the_description_is_answered(stage: Stage) -> None:
    paths = (await stage.json("/openapi.json"))["paths"]
    assert set(paths) >= {"/api/status", "/api/entities", "/api/quotas", "/metrics", "/healthz"}
    assert {operation.path for operation in OPERATIONS} <= set(paths)


@scripted(play)
async def test_the_description_has_the_stream_of_events_and_every_kind_of_event(stage: Stage) -> None:
    description = await stage.json("/openapi.json")
    responses = description["paths"]["/api/events"]["get"]["responses"]
    assert list(responses["200"]["content"]) == ["text/event-stream"]
    assert set(responses) == {"200", "400", "401", "403", "503"}
    schemas = description["components"]["schemas"]
    kinds = schemas["Event"]["discriminator"]["mapping"]
    assert set(kinds) == set(KINDS)
    throttling = schemas[kinds["throttling"].rpartition("/")[2]]
    assert {"user", "client_id", "limit", "throttled_ms"} <= set(throttling["properties"])
