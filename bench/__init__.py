"""What a request costs in Weir, beside other proxies: `python -m bench`, `make bench`
(docs/background/performance.md).

A load generator in a process of its own drives one target at a time: the broker itself, another proxy, Weir.
The targets take turns in rounds, so that what disturbs the machine disturbs them alike. `targets` is the
table to add another proxy to, `rows` the one to add another load to.
"""
