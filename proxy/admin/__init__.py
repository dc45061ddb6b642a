"""The admin endpoint: HTTP for operators.

`endpoint` serves HTTP (hypercorn, starlette). `metrics` lists the metrics of the process, `quota_metrics`
those of the budgets that `entities` reads, `exposition` writes the text, `readiness` checks whether clients
can be served, `request_time` splits a client's request time by API. These are imported only if an endpoint is
configured; `weir quotas explain` imports `request_time`.

A new metric: `metrics`, or `quota_metrics` if it belongs to a budget, and the table in `docs/operations.md`;
a test compares both.

- The endpoint costs nothing between requests, so readiness asks brokers only when it is asked.
- A scrape is written in parts on the loop, and lets sockets be served every millisecond or two. A thread
  would hold the interpreter just as long, and would read budgets that change meanwhile.
- Hypercorn's connections are used without its server, which has no limit of connections (`endpoint`). Here
  32 connections may have one request and 30 s each.
"""
