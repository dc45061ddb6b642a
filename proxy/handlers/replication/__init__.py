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

A follower has one fetch under way on a connection to a leader. The fetch names partitions that are throttled,
and others that are not. Weir must hold back the first, and must not delay the others:

    follower 3                      Weir                               leader 1
       │ fetch: A (listed), B, C     │ over the rate: hold back A         │
       ├────────────────────────────►├── fetch: B, C; forget A ──────────►│
       │◄────────────────────────────┼───────────── records of B, C ──────┤
       │ fetch (nothing new to say)  │ the budget allows 1 MB             │
       ├────────────────────────────►├── fetch: A from its offset, 1 MB ─►│

1. While no replica is listed, fetches pass unread.
2. A listed replica is held back if it is not in sync and a budget is used up. The leader's budget counts for
   the list of leaders, the follower's for the list of followers. In sync means that the fetch offset has
   reached the leader's high watermark.
3. The fetch goes to the leader without the replicas that are held back. The limits of the other listed
   replicas are cut (from Fetch v3 on), so that together they ask for no more than both budgets allow.
4. The response streams through Weir. A scanner reads the length of each partition's records, and charges
   listed replicas to their budgets (`SimpleRate`, 11 samples of 1 s by default).
Leader epochs, errors and offsets pass untouched, so followers truncate their logs as without Weir.

Times of waiting:

- A held-back replica gets records again when its budgets allow what it asks for, or one second at the rate
  (`QUANTUM_S`). Smaller fetches would waste more, because followers discard a batch that is cut.
- Other partitions never wait for the throttle. Their fetch goes to the leader at once, with `max_wait_ms`
  shortened to the time until the first held-back replica may fetch.
- If all partitions are held back, Weir holds the fetch until the budget allows one or `max_wait_ms` is over.
  Then it answers without records, as a leader does.
- Replicas take turns. Those that the latest fetch did not ask for come first.
"""
