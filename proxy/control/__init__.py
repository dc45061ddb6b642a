"""The control plane: quotas in force and their stores, Weir's own requests to brokers, usage records.

`quota_registry` has the table in force and the budgets of each broker's clients. `events` tells who is
throttled, or would be by shadow quotas, from the counters that `throttled` reads, and other changes;
`rate_limited_log` limits log lines that peers cause. `stores` reads and alters the stored quotas, `cluster`
asks brokers, `replication` reads replication throttles, `zookeeper` reads znodes, `usage` writes usage
records.

`slices` divides long work into steps. `supervisor` restarts Weir's own tasks after a failure: a bug in the
expiry of budgets, in discovery or in the admin endpoint must end no connection. The pause before a restart
grows to a minute. A failure during the start of the process is not retried: the process ends.
"""
