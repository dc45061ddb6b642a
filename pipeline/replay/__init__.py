"""Replay recorded usage under other quota files, with the code that enforces quotas, to find their throttles.

- Spark shuffles records, packed by budget and period, and polars turns them into charges behind the shuffle:
  a record may become ten charges. Periods follow each other, so a heavy client's trace need not fit into
  memory. The charges of one budget are replayed in order, so that one core does this work.
- Most charges are counted, not replayed, because they are far from any limit (`run`).
- Connections that fetch again after the same throttle time are woken together, and those that receive nothing
  are throttled again in one step. One step per connection would take time that grows with the square of their
  number.
- The hold of a new connection's first request is not replayed, because the recorded times include it.
- Each quota is replayed separately: the recorded times include the quotas' influence on each other, and a
  model of clients that wait for several quotas would be a guess.
- The limits of one key that a client has with its groups are no guess, because one charge goes to all. So a
  group is replayed with what its members have below it (`quotas.replay_rules`). Rejected: one replay for all
  that are linked by groups. With a limit for all clients, one core would do the whole work, and no segment
  would be too quiet to replay.
"""
