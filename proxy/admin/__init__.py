"""The admin endpoint: HTTP for operators.

`endpoint` serves HTTP (`http` with h11, starlette), and `places` bounds the requests that are answered.
`metrics` lists the metrics of the process, `quota_metrics` those of the budgets that `entities` reads;
`exposition` writes their text. `readiness` checks if clients can be served, `request_time` splits a client's
request time by API, `replication` shows replication quotas.
`page` is the page on `/`. These modules are imported only if an endpoint is configured; `weir quotas
explain` imports `request_time`, and `weir top` imports `replication.status`.

A new metric belongs in `metrics`, or in `quota_metrics` if it is about a budget. The table of
`docs/reference/metrics.md` is made from these declarations.

- Readiness asks brokers only when a client asks for it, or while events are read.
- The text of a scrape is written in steps on the loop, and sockets are served after each millisecond or two.
  A thread would hold the interpreter just as long, and would read budgets while they change.
- Each connection serves one request, for at most 30 s (`http`).
"""
