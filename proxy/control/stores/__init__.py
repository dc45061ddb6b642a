"""Quota stores: a file, a topic of the cluster, the brokers; and the quota manager.

`store` defines the interface of stores, `choose` in `proxy.run` opens the configured store: a new store is a
class and a line in `choose`. `file`, `topic` and `broker` are stores; `record`, `records`,
`replication_records` and `topic_log` belong to `topic`. `snapshot` keeps the last known quotas for a start
without the store. `quota_manager` puts a store's quotas in force, and makes the `alterations` that admins
ask for.

- An alteration is in force before its response is sent, so that a tool which then describes the quotas sees
  the values that it has set. At most 100 alterations may wait.
- Pacing and scope belong to an entry, and stay when its values are altered over the wire: Kafka's
  AlterClientQuotas cannot express them, so a value changed with Kafka's tools must not reset them.
- The audit log is written at every log level, because an operator must always find who changed a quota.
- If the brokers store the quotas, both quota APIs are forwarded to the brokers, whose ACLs and validation
  apply.
- Files are compared once a second, in a thread, which takes 0.1 % of a core (`proxy.file_watch`).
"""
