"""A cluster that stores client quotas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tests.kfake.cluster import Cluster
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasResponse,
)

Stored = list[tuple[dict[str, str | None], dict[str, float]]]
"""(entity by type, values by key)."""
Described: Final = DescribeClientQuotasResponse


def described(stored: Stored) -> DescribeClientQuotasResponse:
    return Described(
        entries=[
            Described.EntryData(
                entity=[
                    Described.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
                ],
                values=[Described.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in stored
        ]
    )


@dataclass(kw_only=True)
class QuotaCluster(Cluster):
    """It answers DescribeClientQuotas and AlterClientQuotas."""

    stored: Stored = field(default_factory=list)
    quotas_error: int = 0
    """Error code of both APIs."""
    refusal: str | None = None
    """Message of the error with which alterations are answered."""
    deaf: bool = False
    """Takes alterations, and shows nothing of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.handlers.setdefault(ApiKey.DESCRIBE_CLIENT_QUOTAS, self.describe_quotas)
        self.handlers.setdefault(ApiKey.ALTER_CLIENT_QUOTAS, self.alter_quotas)

    def describe_quotas(self, *_: object) -> DescribeClientQuotasResponse:
        found = described(self.stored)
        found.error_code = self.quotas_error
        return found

    def alter_quotas(self, request: AlterClientQuotasRequest, *_: int) -> AlterClientQuotasResponse:
        entry = AlterClientQuotasResponse.EntryData
        error_code = 42 if self.refusal else self.quotas_error
        if error_code:
            return AlterClientQuotasResponse(
                entries=[entry(error_code=error_code, error_message=self.refusal)]
            )
        for change in request.entries if not self.deaf else []:
            entity = {part.entity_type: part.entity_name for part in change.entity}
            values = next((values for known, values in self.stored if known == entity), None)
            if values is None:
                values = {}
                self.stored.append((entity, values))
            for operation in change.ops:
                values.pop(operation.key, None)
                if not operation.remove:
                    values[operation.key] = operation.value
        self.stored = [each for each in self.stored if each[1]]
        return AlterClientQuotasResponse(entries=[entry() for _change in request.entries])
