"""The admin endpoint: HTTP for operators.

`start` builds it. `endpoint` serves HTTP (hypercorn, starlette), `metrics` lists the metrics, `entities`,
`mutation_entities` and `request_times` read the budgets, `exposition` writes the text, `readiness` checks
whether clients can be served, `request_time_page` splits a client's request time by API. These are imported
only if an endpoint is configured; `weir quotas explain` imports `request_time_report`, the page's format.

The endpoint costs nothing between requests, and a scrape lets sockets be served every millisecond or two.
"""
