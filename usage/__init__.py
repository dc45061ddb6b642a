"""Usage records: written by Weir, read by the pipeline, defined here once.

Sans-IO. `proxy/` fills records, `pipeline/` derives its Spark schemas from them (`schema`). `records` has the
two types, `groups` the API groups. A new figure is a field with a default in `records`.

A room of its own, because the proxy writes records and the pipeline reads them, and neither may import the
other. Records add up, and say what was on the wire between client and Weir, so totals can be checked against
the wire exactly; what a byte rate would be charged is a field of its own.
"""

from usage.groups import GROUPS, Group
from usage.records import VERSION, ByQuota, TraceRecord, UsageRecord

__all__ = ["GROUPS", "VERSION", "ByQuota", "Group", "TraceRecord", "UsageRecord"]
