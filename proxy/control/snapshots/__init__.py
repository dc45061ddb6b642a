"""Snapshots: frozen records of the state of this process, for operators.

`records` has the types of all records; the admin endpoint, the page and `weir top` show these records.

Prometheus' metrics are not made from these records, but from the same counters and with the same readers of a
budget (`values`):

- A counter must never decrease. So totals include budgets that have expired, and the entities with series of
  their own are those that were charged most, because that choice stays. Records list those that are first in
  the order that the operator asks for.
- A scrape of 1,000 entities takes tens of milliseconds. Records of them would add sentences, histories, and
  the connections of each entity, which no metric has.

`tests/admin/test_agreement.py` compares both at one moment.
"""
