"""The control plane: quotas in force and their stores, Weir's own requests to brokers, usage records.

`quota_registry` has the one table in force and the budgets of each broker's clients; `shadow_log` logs the
throttles that shadow quotas would have caused; `rate_limited_log` bounds lines that peers cause. `stores` is
where quotas live, `cluster` asks brokers, `usage` writes usage records.

`supervisor` starts Weir's own tasks again after a failure: a bug in the expiry of budgets, in discovery or
the admin endpoint must end no connection. Waits between attempts grow to a minute. A start fails at once.
"""
