"""Events: changes of Weir's state that matter to operators, each published once.

    throttle_log (who is throttled)    |
    levels (usage at 50, 80, 100 %)    |            | the log: the producers write their own lines
    quota_changes (the table)          | -> hub ->  | /api/events (`weir.proxy.admin.api.events`)
    conditions (brokers, stores, ...)  |            | a topic (`topic`)

Producers read counters and states periodically, in steps; no request and no connection publishes anything. So
peers decide neither how often Weir publishes nor how long it takes. The log and the other destinations have
one source: a line in the log and its event come from the same episode.

The hub never waits. It keeps the latest events for readers that connect again, and closes a reader that is
too slow.
"""
