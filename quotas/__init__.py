"""The quota rules: which limit applies to a client, how much of it was used, and the throttle time.

Numbers in, numbers out. This package reads no clock and no socket: time is an argument, `now_ms`, in ms on a
monotonic clock. The rules are those of Kafka's brokers (3.8 and newer). Tests compare the results with
numbers from Kafka's own classes; `docs/quotas.md` lists the intended differences.

The way through the room: a quota file becomes a `QuotaTable`; the table gives each broker's `BrokerQuotas`
their limits; a connection asks these for its client's `ClientLedger`, and charges it.

- Formats: `quota_file` and `quota_entry` (the file), `quota_edit` (changes), `imported`,
  `zookeeper_layout`.
- Table: `table`, `entities` (who is meant, which level wins), `limits` (look-up), `options`, `explain`.
- Charges: `broker_quotas` has all quotas of one broker, `client_quotas` the limits of one key, `registry`
  its limiters, `ledger` those of one client; `limiters` compute the waits. Other kinds: `mutations`,
  `topics`, `connections`, `cluster_quotas`. A new key gets a `ClientQuotas` in `BrokerQuotas` and a field
  in `ClientLedger`.
- Request time: `request_costs` and `costs/` (coefficients), `request_time` (the arithmetic); `calibration`,
  `cost_fitting`, `cost_findings` and `cost_file` measure and write them. `replay` computes what-if.

Decisions that hold here:

- The quota file's format is in this room, because the pipeline, which may import only `quotas` and `usage`,
  writes files that `weir run` reads.
- Prefixes, topics and addresses are fields of `Tags`: a client-id may be any string, so no spelling of
  another thing as a client-id is safe.
- A `client_id_prefix` is one budget for all its client-ids: client-ids with a random part are one
  application, and a new client-id per connection is no escape.
- Shadow entries have budgets of their own beside the enforced ones, which do not see them: trying a quota
  loosens nothing, and the same code computes both.
- A cluster's budgets are one more `ClientQuotas`, which each broker's asks: connections keep the budget
  that they looked up, and metrics show it once. Mutations are rare, so connections look theirs up with each
  request.
- Limiters under a default quota are about 1 KB each and forgotten an hour after the last charge, as Kafka
  forgets sensors. `registry` bounds their number: idle ones go first, and if all are in use, a newcomer is
  charged to the overflow limiter of its user, which makes nobody wait. Refusing newcomers would let one
  client lock out others, and forgetting limiters in use would be an escape.
- A request budget below half of its limit adds up charges and looks at the rate only when that could
  matter: 0.6 µs less per request. A property test compares it with the plain budget.
"""

from quotas.broker_quotas import BrokerQuotas
from quotas.client_quotas import ClientQuotas
from quotas.costs.cost import Cost
from quotas.ledger import ClientLedger
from quotas.limiters.budgets import Budget
from quotas.limiters.request_time import RequestBudget
from quotas.mutations import NO_LEDGER, LateCharge, MutationBudget, MutationCharge, MutationLedger
from quotas.table.entities import DEFAULT, Entity, Prefix, Tags
from quotas.table.explain import Explanation, explain
from quotas.table.limits import Limit, Limits
from quotas.table.quota_edit import edited
from quotas.table.quota_entry import QuotaFileError
from quotas.table.quota_file import parse, render
from quotas.table.quota_table import QuotaKey, QuotaTable

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
