"""The quota rules: the limit of a client, its usage, and the throttle time.

This package reads no clock and no socket: time is an argument, `now_ms`, in ms on a monotonic clock. The
rules are those of Kafka's brokers (3.8 and newer). Tests compare the results with numbers from Kafka's own
classes; `docs/reference/quotas.md` lists the intended differences.

From file to charge: a quota file is parsed to a `QuotaTable`. `BrokerQuotas.use` puts the limits of the
table in force at a broker. A connection looks up the `ClientLedger` of its client in `BrokerQuotas` and
charges each request to the ledger.

- `table/`: the configuration. `quota_table` (all entries), `entities` (subjects of quotas, precedence of
  levels), `groups` (members), `limits` (look-up), `options`, `explain`, `names`, `bounded_names`; formats:
  `quota_file`, `quota_entry`, `replication_entry`, `quota_edit` and `replication_edit` (changes of a file),
  `imported`, `zookeeper_layout`.
- `limiters/`: usage and throttle times of one limit. `limiter` (protocol), `counters`, `budgets`, `smooth`,
  `bucket`, `request_time`, `rate`, `simple_rate`, `samples`, `throttle`, `shadow`, `chain`.
- `replication/`: replication quotas of brokers (KIP-73). `throttles` (configuration), `budgets` (usage of a
  broker in a role), `replication_quotas` (all budgets, and the progress of replicas).
- `costs/`: estimated request time. `request_costs` (coefficients, and the shipped `*.toml`), `cost`
  (estimate); `calibration`, `cost_fitting`, `cost_findings` and `cost_file` measure a broker and write its
  coefficients.
- Here: `broker_quotas` (all quotas of one broker), `cluster_quotas` (budgets that brokers share),
  `client_quotas` (limits and limiters of one quota key), `registry` (limiters by tags), `ledger` (limiters of
  one client), `mutations`, `topics`, `connections`; `replay` and `replay_hours` simulate another limit.

To add a quota key, add a `ClientQuotas` to `BrokerQuotas` and a field to `ClientLedger`.

Design decisions:

- The quota file's format is in this package, because the pipeline, which may import only `quotas` and
  `usage`, writes files that `weir run` reads.
- Prefixes, topics and addresses are fields of `Tags`: a client-id may be any string, so a topic or a prefix
  written as a client-id could be mistaken for one.
- A `client_id_prefix` is one budget for all its client-ids, because client-ids with a random part belong to
  one application, and a client must not get a new budget by a new client-id per connection.
- Shadow entries have budgets of their own, independent of enforced budgets: a quota on trial loosens no
  enforced quota, and the same code computes both.
- A cluster's budgets are another `ClientQuotas`, in which the brokers' `ClientQuotas` look them up:
  connections keep the budget that they looked up, and metrics show each budget once. Mutations are rare, so
  connections look up mutation budgets at each request.
- Limiters under a default quota are about 1 KB each and removed an hour after the last charge, like Kafka's
  sensors. `registry` bounds their number: idle limiters are removed first. If all limiters are in use, a new
  client is charged to the overflow limiter of its user, which has no limit. If Weir refused new clients
  instead, one client could lock out others; if Weir removed limiters in use, a client could erase its own
  usage.
- A request budget below half of its limit adds up charges, and computes the rate only when the rate could
  exceed half of the limit: 0.6 µs less per request. A property test compares its results with those of
  `Budget`.
"""

from weir.quotas.broker_quotas import BrokerQuotas
from weir.quotas.client_quotas import ClientQuotas
from weir.quotas.costs.cost import Cost
from weir.quotas.ledger import ClientLedger
from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.request_time import RequestBudget
from weir.quotas.mutations import NO_LEDGER, LateCharge, MutationBudget, MutationCharge, MutationLedger
from weir.quotas.table.entities import DEFAULT, Entity, Prefix, Tags
from weir.quotas.table.explain import Explanation, explain
from weir.quotas.table.limits import Limit, Limits
from weir.quotas.table.quota_entry import QuotaFileError
from weir.quotas.table.quota_file import parse, render
from weir.quotas.table.quota_table import QuotaKey, QuotaTable

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
    "explain",
    "parse",
    "render",
]
