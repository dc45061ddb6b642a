"""Roll up usage by entity, broker, hour and day. Only days with new records are computed.

- Rates are averages over 10 s by default, about the time over which a broker's quota averages: 11 samples of
  1 s. A shorter peak violates no quota.
- Quotas are per broker, so rows are, too. `reading` has sums over brokers and entities for other jobs.
- `spread` distributes the work over Spark's tasks; `windows` and `periods` compute with polars in each task.
- Percentiles are exact, because an entity has at most 8,640 windows per day and broker.
"""
