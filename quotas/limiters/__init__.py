"""The limiters: each counts what was used of one limit, and says how long its users must wait.

`limiter` names what they have in common. `budgets` has Kafka's limiter of bytes and request time: a rate over
samples (`rate`, `samples`). `smooth` has Weir's own, which holds a byte rate evenly. `bucket` holds the
tokens of partition mutations, `simple_rate` is the rate of replication quotas, `throttle` turns a rate or
missing tokens into a throttle time.
"""
