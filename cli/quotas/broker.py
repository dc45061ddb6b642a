"""Read the quotas that brokers store themselves, for `weir quotas import` (KIP-546), without changing
them.
"""

from __future__ import annotations

from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import DescribeClientQuotasResponse
from weir.proxy.addresses import Address
from weir.proxy.config.config import Config
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.connection import QuestionError
from weir.proxy.control.cluster.discovery import ask_versions
from weir.proxy.control.stores.wire_quotas import EVERYTHING, VERSION, imported
from weir.quotas.table.imported import Imported


async def read(config: Config) -> tuple[Address, Imported]:
    """Read all quotas from the first upstream broker that answers; return the broker's address and the
    quotas. Raises QuestionError if no broker answers.
    """
    failures: list[QuestionError] = []
    for address in config.upstream:
        try:
            answer = await _describe(config, address)
        except QuestionError as error:
            failures.append(error)
        else:
            return address, imported(answer)
    raise failures[0]


async def _describe(config: Config, address: Address) -> DescribeClientQuotasResponse:
    timeout_s, access = config.connect_timeout_s, Access.of(config)
    if ApiKey.DESCRIBE_CLIENT_QUOTAS not in await ask_versions(address, timeout_s, access):
        raise _UnfitError(address, "brokers before 2.6 do not tell their quotas: use `weir quotas import`")
    answer = await access.ask(address, EVERYTHING, DescribeClientQuotasResponse, VERSION, timeout_s)
    if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise _UnfitError(address, "Weir's user may not see quotas: allow it DESCRIBE_CONFIGS on the cluster")
    if answer.error_code != ErrorCode.NONE:
        raise _UnfitError(address, f"it answers DescribeClientQuotas with error {answer.error_code}")
    return answer


class _UnfitError(QuestionError):
    """Raised if a broker answers, but cannot report quotas: it is too old, or denies access."""

    def __init__(self, address: Address, text: str) -> None:
        super().__init__(f"{address}: {text}", reachable=True, foreign=False)
