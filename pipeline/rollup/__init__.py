"""Roll-up: use by entity, hour and day. Only days with new records are made anew.

- Rates are averages over 10 s by default, because a quota judges that: 11 samples of a second. A second's
  peak within it violates no quota.
- Shuffled by window first, then by entity: raw records of one heavy client are spread evenly, and after the
  first step it has one row per window and broker.
- Percentiles are exact: an entity has 8,640 windows a day per broker at most.
- Changed days are seen from the names of files: no data is read to find that nothing is to be done.
"""
