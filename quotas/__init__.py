"""The quota rules: which limit applies to a client, how much of it was used, and the throttle time.

Numbers in, numbers out. This package reads no clock and no socket: time is an argument, `now_ms`, in ms on a
monotonic clock. The rules are those of Kafka's brokers (3.8 and newer). Tests compare the results with
numbers from Kafka's own classes; `docs/quotas.md` lists the intended differences.

Order of reading: `quota_file` parses a file into a `QuotaTable`, the table gives each broker's `BrokerQuotas`
their limits, and a connection gets its client's `ClientLedger` from `BrokerQuotas` and charges it.
"""

from quotas.broker_quotas import BrokerQuotas
from quotas.client_quotas import ClientQuotas
from quotas.entities import DEFAULT, Entity, Prefix, Tags
from quotas.explain import Explanation, explain
from quotas.ledger import ClientLedger
from quotas.limiters.budgets import Budget
from quotas.limits import Limit, Limits
from quotas.mutations import NO_LEDGER, LateCharge, MutationBudget, MutationCharge, MutationLedger
from quotas.quota_edit import edited
from quotas.quota_entry import QuotaFileError
from quotas.quota_file import parse, render
from quotas.request_time import Cost, RequestBudget
from quotas.table import QuotaKey, QuotaTable

__all__ = [
    "DEFAULT",
    "NO_LEDGER",
    "BrokerQuotas",
    "Budget",
    "ClientLedger",
    "ClientQuotas",
    "Cost",
    "Entity",
    "Explanation",
    "LateCharge",
    "Limit",
    "Limits",
    "MutationBudget",
    "MutationCharge",
    "MutationLedger",
    "Prefix",
    "QuotaFileError",
    "QuotaKey",
    "QuotaTable",
    "RequestBudget",
    "Tags",
    "edited",
    "explain",
    "parse",
    "render",
]
