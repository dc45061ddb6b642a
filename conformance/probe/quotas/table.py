"""Client quotas of the target: set, described and removed by KIP-546."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from weir.conformance.probe.quotas import judgement, requests
from weir.conformance.probe.quotas.client import ProbeClient
from weir.conformance.probe.quotas.jobs import Check, ClientQuota, Job, QuotaFinding
from weir.conformance.probe.quotas.waiting import until
from weir.conformance.quota_names import FETCH, MUTATION, PRODUCE, REQUEST
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weir.conformance.probe.quotas.client import BrokerEndpoint
    from weir.conformance.probe.quotas.jobs import Stage

KEYS: Final = {
    PRODUCE: 1234.0,
    FETCH: 5678.0,
    REQUEST: 12.5,
    MUTATION: 0.5,
}
"""Quotas that are set and described: a long or a fraction, as the key permits."""
BEFORE_MUTATIONS: Final = (PRODUCE, FETCH, REQUEST)
"""Keys of brokers before 2.7."""
STRICT_CREATE: Final = 6
_CLIENT: Final = "client-id"
_EXACT: Final = 0
IN_FORCE_S: Final = 10.0
"""Time (s) within which an altered quota must be in force: brokers take the change over asynchronously."""


class AlterError(Exception):
    """Raised if the target refuses to alter quotas; says with which error."""


def alter(client: ProbeClient, version: int, quotas: Sequence[ClientQuota], **options: bool) -> None:
    """Set quotas. Options: `remove` instead; `validate_only`. Raises AlterError, LinkError."""
    by_client: dict[str, list[ClientQuota]] = {}
    for quota in quotas:
        by_client.setdefault(quota.client_id, []).append(quota)
    made = AlterClientQuotasRequest
    remove = options.get("remove", False)
    entries = [
        made.EntryData(
            entity=[made.EntityData(entity_type=_CLIENT, entity_name=client_id)],
            ops=[made.OpData(key=each.key, value=each.value, remove=remove) for each in of],
        )
        for client_id, of in by_client.items()
    ]
    request = made(entries=entries, validate_only=options.get("validate_only", False))
    message = client.ask(request, ApiKey.ALTER_CLIENT_QUOTAS, version).message
    assert isinstance(message, AlterClientQuotasResponse)
    for entry in message.entries:
        if entry.error_code:
            name = entry.entity[0].entity_name if entry.entity else "?"
            raise AlterError(f"{name}: error code {entry.error_code}: {entry.error_message or 'no message'}")


def described(client: ProbeClient, version: int, client_id: str) -> dict[str, float]:
    """Return the quotas of a client-id. Raises AlterError, LinkError."""
    component = DescribeClientQuotasRequest.ComponentData(
        entity_type=_CLIENT, match_type=_EXACT, match=client_id
    )
    request = DescribeClientQuotasRequest(components=[component], strict=True)
    message = client.ask(request, ApiKey.DESCRIBE_CLIENT_QUOTAS, version).message
    assert isinstance(message, DescribeClientQuotasResponse)
    if message.error_code:
        raise AlterError(f"error code {message.error_code}: {message.error_message or 'no message'}")
    return {each.key: each.value for entry in message.entries or () for each in entry.values}


def jobs(stage: Stage) -> Iterator[Job]:
    """Return the jobs that alter quotas, in each version, and the removal of a quota in force."""
    describing = stage.of(ApiKey.DESCRIBE_CLIENT_QUOTAS)
    for version in stage.of(ApiKey.ALTER_CLIENT_QUOTAS):
        stem = f"quotas/alter/v{version}"
        altering = [Check(f"{stem}/{what}", ApiKey.ALTER_CLIENT_QUOTAS, version) for what in _ALTERED]
        reading = [
            Check(_describe_name(version, read), ApiKey.DESCRIBE_CLIENT_QUOTAS, read) for read in describing
        ]
        yield Job(checks=(*altering, *reading), quotas=(), run=partial(_run, version=version), alters=True)
    if stage.of(ApiKey.ALTER_CLIENT_QUOTAS) and stage.of(ApiKey.METADATA).max >= THROTTLED_METADATA:
        version = stage.of(ApiKey.ALTER_CLIENT_QUOTAS).max
        name = f"quotas/alter/v{version}/removed-quota-ends"
        client_id = f"{stage.prefix}removed"
        yield Job(
            checks=(Check(name, ApiKey.ALTER_CLIENT_QUOTAS, version),),
            quotas=(ClientQuota(client_id, REQUEST, 0.00001),),
            run=partial(_run_removed, client_id=client_id, version=version, name=name),
            alters=True,
        )


_ALTERED: Final = ("validate-only", "set", "removed")


def _describe_name(altered: int, version: int) -> str:
    return f"quotas/describe/v{version}/as-set-by-v{altered}"


def _run(stage: Stage, version: int) -> Iterator[QuotaFinding]:
    client_id = f"{stage.prefix}described-v{version}"
    strict = stage.of(ApiKey.CREATE_TOPICS).max >= STRICT_CREATE
    wanted = KEYS if strict else {key: KEYS[key] for key in BEFORE_MUTATIONS}
    quotas = [ClientQuota(client_id, key, value) for key, value in wanted.items()]
    stem = f"quotas/alter/v{version}"
    newest = stage.of(ApiKey.DESCRIBE_CLIENT_QUOTAS).max
    with ProbeClient(stage.leader, stage.prefix + "admin") as client:
        try:
            alter(client, version, quotas, validate_only=True)
            yield QuotaFinding(f"{stem}/validate-only", _same(described(client, newest, client_id), {}))
            alter(client, version, quotas)
            until(lambda: described(client, newest, client_id) == wanted, IN_FORCE_S)
            yield QuotaFinding(f"{stem}/set", _same(described(client, newest, client_id), wanted))
            for reading in stage.of(ApiKey.DESCRIBE_CLIENT_QUOTAS):
                found = described(client, reading, client_id)
                yield QuotaFinding(_describe_name(version, reading), _same(found, wanted))
            alter(client, version, quotas, remove=True)
            until(lambda: not described(client, newest, client_id), IN_FORCE_S)
            yield QuotaFinding(f"{stem}/removed", _same(described(client, newest, client_id), {}))
        except AlterError as error:
            for what in _ALTERED:
                yield QuotaFinding(f"{stem}/{what}", f"the target refused: {error} (KIP-546)")


def _same(found: dict[str, float], wanted: dict[str, float]) -> str:
    if found == wanted:
        return ""
    return (
        f"DescribeClientQuotas says {found or 'no quotas'}; it should say {wanted or 'no quotas'} (KIP-546)"
    )


def _run_removed(stage: Stage, client_id: str, version: int, name: str) -> Iterator[QuotaFinding]:
    with ProbeClient(stage.leader, stage.prefix + "admin") as admin:
        if throttle_ms(stage.leader, client_id) == 0:
            yield QuotaFinding(name, "the quota was not in force before it was removed (KIP-546)")
            return
        try:
            alter(admin, version, [ClientQuota(client_id, REQUEST, 0.00001)], remove=True)
        except AlterError as error:
            yield QuotaFinding(name, f"the target refused: {error} (KIP-546)")
            return
    until(lambda: throttle_ms(stage.leader, client_id) == 0, IN_FORCE_S)
    complaint = judgement.below_quota(throttle_ms(stage.leader, client_id))
    yield QuotaFinding(name, complaint and f"{IN_FORCE_S:g} s after the quota was removed: {complaint}")


def throttle_ms(endpoint: BrokerEndpoint, client_id: str) -> int:
    """Return the throttle time (ms) that a small request of this client-id gets, on a new connection. Raises
    LinkError.
    """
    with ProbeClient(endpoint, client_id) as client:
        return client.ask(requests.brokers(), ApiKey.METADATA, THROTTLED_METADATA).throttle_ms


THROTTLED_METADATA: Final = 3
"""First version of Metadata with a throttle time."""
