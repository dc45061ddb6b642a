"""Limits of one quota key."""

from collections.abc import Mapping

from weir.quotas import Entity, Limits
from weir.quotas.table.quota_delta import QuotaValue


def limits_of(quotas: Mapping[Entity, float]) -> Limits:
    return Limits({entity: QuotaValue(value) for entity, value in quotas.items()})
