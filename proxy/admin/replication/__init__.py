"""Replication quotas (KIP-73) as operators see them.

`status` reads a snapshot of the budgets and of the throttled replicas: the JSON of `GET /replication`, which
`weir top --view replication` shows. `metrics` lists the metrics made from the same snapshot.
"""
