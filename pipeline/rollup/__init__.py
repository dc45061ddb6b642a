"""Roll up usage by entity, broker, hour and day. Only days with new records are computed.

- Rates are averages over 10 s by default, about the time over which a broker's quota averages: 11 samples of
  1 s. A shorter peak violates no quota.
- Quotas are per broker, so rows are, too. `reading` has sums over brokers and entities for other jobs.
- `job` chooses the days; `compute` computes them with polars in Spark's tasks.
"""
