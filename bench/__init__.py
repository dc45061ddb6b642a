"""Compare the cost of a request in Weir with its cost in other proxies: `python -m bench`, `make bench`
(docs/background/performance.md).

A load generator in a process of its own sends requests to one target at a time: to the broker itself, to
another proxy, or to Weir. The targets take turns in rounds, so that other work of the machine disturbs all of
them alike. To add a proxy, add it to the table in `targets`; to add a load, add it to the table in `rows`.
"""
