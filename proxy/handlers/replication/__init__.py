"""Replication quotas (KIP-73): brokers' fetches from each other, on replication listeners.

`replica_fetches` recognises replica fetches, `fetches` decides about them, `replica_fetcher` chooses the
partitions that a fetch may have records of, `fetch_session` rewrites fetches within a fetch session
(KIP-227), `fetched_bytes` charges the responses. `replication` is what all connections share.

Weir changes the request, as a follower that obeys KIP-73 does: throttled partitions are taken out of it. If
Weir removed records from responses instead, the leader would read them from disk again and again, and each
long poll would end at once, because the throttled partitions always have records.
"""
