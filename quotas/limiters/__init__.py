"""The limiters: each counts what was used of one limit, and says how long its users must wait.

`limiter` names what they have in common. `budgets` has Kafka's limiter of bytes and request time: a rate over
samples (`rate`, `samples`). `smooth` has Weir's own, which holds a byte rate evenly. `bucket` holds the
tokens of partition mutations, `simple_rate` is the rate of replication quotas, `throttle` turns a rate or
missing tokens into a throttle time. `shadow` is a decorator that charges a shadow limiter too.

A new algorithm is a subclass of `Budget`, a value of `Pacing` in `quotas.table.options`, and a line in
`smooth.paced`. `smooth` keeps a debt in bytes, not the time at which it is free: a new limit then pays off
what is owed, where a time would stay, which a low limit may have set days ahead.
"""
