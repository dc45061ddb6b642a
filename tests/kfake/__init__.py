"""Fake brokers: one cluster (state, answers, requests so far) without sockets or a clock, and shells for it.

`cluster.py` has the cluster and what every broker answers; `controller.py`, `configs.py`, `client_quotas.py`
and `login.py` add APIs. `in_trio.py`, `threads.py` and `process.py` serve a cluster at sockets; `direct.py`
puts one behind a connection of Weir.
"""
