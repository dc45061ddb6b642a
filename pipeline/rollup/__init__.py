"""Roll up usage by entity, hour and day. Only days with new records are computed.

- Rates are averages over 10 s by default, about the time over which a broker's quota averages: 11 samples of
  1 s. A shorter peak violates no quota.
- Rows are shuffled by window first, then by entity. The first shuffle spreads the records of one heavy client
  evenly; after it, the client has one row per window and broker.
- Percentiles are exact, because an entity has at most 8,640 windows per day and broker.
- Changed days are found from the names of files, so that no data is read if nothing has changed.
"""
