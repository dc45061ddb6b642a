"""Replication quotas (KIP-73): brokers' fetches from each other, and the configurations that throttle them.

At replication listeners: `replica_fetches` recognises replica fetches, `fetches` decides about them,
`replica_fetcher` has the state of a connection, `fetched_replicas` chooses the replicas that may get records,
`replica_session` keeps the follower's fetch session apart from the leader's (KIP-227), `incoming_fetch` makes
the frames, `fetched_bytes` charges the responses. `replication` is shared by all connections.

At listeners for clients: `configs` takes throttles out of requests that alter configurations,
`described_configs` shows them.

Weir takes throttled partitions out of the request, like a follower with a throttle of its own (KIP-73). If
Weir removed records from responses instead, the leader would read them from disk again and again, and each
long poll would end at once, because the throttled partitions always have records.
"""
