"""The limiters: each counts the units used of one limit, and computes throttle times.

`limiter` has their common protocol. `budgets` has Kafka's limiter of bytes and request time: a rate over
samples (`rate`, `samples`). `smooth` has a limiter that Kafka lacks, which keeps a byte rate even. `bucket`
has the token bucket of partition mutations. `throttle` computes a throttle time from a rate or from missing
tokens.
"""
