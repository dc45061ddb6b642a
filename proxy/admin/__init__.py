"""The admin endpoint: HTTP for operators.

`start` builds it. `endpoint` serves HTTP (hypercorn, starlette), `metrics` lists the metrics, `entities`,
`mutation_entities` and `request_times` read the budgets, `exposition` writes the text, `readiness` checks
whether clients can be served, `request_time_page` splits a client's request time by API. These are imported
only if an endpoint is configured; `weir quotas explain` imports `request_time_report`, the page's format.

A new metric: `metrics`, or the module that it calls for the subject (`connection_metrics`, `quota_metrics`,
`store_metrics`, `tls_metrics`, `topic_metrics`, `usage_metrics`, ...), and the table in `docs/operations.md`;
a test compares both.

- The endpoint costs nothing between requests, so readiness asks brokers only when it is asked.
- A scrape is written in parts on the loop, and lets sockets be served every millisecond or two. A thread
  would hold the interpreter just as long, and would read budgets that change meanwhile.
- Hypercorn's connections are used without its server, which has no limit of connections (`endpoint`). Here
  32 connections may have one request and 30 s each.
"""
