"""The admin endpoint: what Weir tells operators about itself.

`start` puts it together. `endpoint` serves HTTP (hypercorn, starlette), `metrics` says what is exposed,
`entities`, `mutation_entities` and `request_times` read the budgets, `exposition` writes the text,
`readiness` tells whether clients can be served, `request_time_page` where a client's request time went.
These are imported only when an endpoint is configured; `request_time_report`, the form of that page, by
`weir quotas explain` as well. `quota_file_state` notes down what would be lost otherwise.

It costs nothing between requests, and a scrape gives way to the sockets every millisecond or two.
"""
