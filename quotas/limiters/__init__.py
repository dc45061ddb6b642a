"""The limiters: each counts the usage of one limit and computes throttle times.

`limiter` has the protocol of all limiters, `counters` their common base. `budgets` has Kafka's limiter of
bytes and request time: a rate over samples (`rate`, `samples`). `smooth` has Weir's own limiter of byte
rates, with short, even throttle times. `bucket` holds the tokens of partition mutations, `simple_rate` is the
rate of replication quotas, `throttle` turns a rate or missing tokens into a throttle time. `shadow` charges
an enforced limiter and a shadow limiter as one.

A new algorithm is a subclass of `Budget`, a value of `Pacing` in `quotas.table.options`, and a line in
`smooth.KINDS`. `smooth` stores the debt of a client in bytes, not the time at which the debt will be paid:
after a change of the limit, the debt is paid at the new limit. A stored time would stay, even if the former
limit was low and the time is days ahead.
"""
