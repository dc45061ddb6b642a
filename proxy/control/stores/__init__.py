"""Quota stores: a file, a topic of the cluster, the brokers; and the quota manager.

`store` defines a store, `choose` in `proxy.run` opens the configured one: a new store is a class and a line
there. `file`, `topic` (with `records`, `topic_log`) and `broker` are stores; `snapshot` keeps the last known
quotas for a start without the store. `quota_manager` keeps them in force and alters them.

- An alteration is in force before it is answered: a tool that asks again sees what it has set. 100 may
  wait.
- Pacing and scope belong to an entry and stay when its values are altered over the wire: Kafka's
  AlterClientQuotas cannot express them, and a number changed with Kafka's tools must not undo them.
- The audit log is written at every log level: who changed a quota is no matter of verbosity.
- If brokers store the quotas, both APIs are forwarded to them: their ACLs and validation decide.
- Files are compared once a second, in a thread, which takes 0.1 % of a core (`proxy.file_watch`).
"""
