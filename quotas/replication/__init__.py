"""Replication quotas (KIP-73): which replicas are throttled, at which rate, and what they have used.

`throttles` has the configuration under Kafka's names, `budgets` the usage of one broker in one role,
`replication_quotas` the budgets of all brokers and the progress of the throttled replicas.
"""
