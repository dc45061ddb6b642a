"""The admin endpoint: HTTP for operators.

`endpoint` serves HTTP (hypercorn, starlette). `metrics` lists the metrics of the process, `quota_metrics`
those of the budgets that `entities` reads, `exposition` writes the text, `readiness` checks whether clients
can be served, `request_time` splits a client's request time by API. These are imported only if an endpoint is
configured; `weir quotas explain` imports `request_time`.

The endpoint costs nothing between requests, and a scrape lets sockets be served every millisecond or two.
"""
