"""The admin endpoint: what Weir tells operators about itself.

`start` puts it together. `endpoint` serves HTTP (hypercorn, starlette), `metrics` says what is exposed,
`entities` and `mutation_entities` read the budgets, `exposition` writes the text, `readiness` tells whether
clients can be served. These are imported only when an endpoint is configured. `quota_file_state` notes down
what would be lost otherwise.

It costs nothing between requests, and a scrape gives way to the sockets every millisecond or two.
"""
