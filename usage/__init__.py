"""Usage records, which Weir writes and the pipeline reads.

This package does no I/O. `records` has the two types of records, `groups` the API groups. `proxy/` fills
records; `pipeline/` derives its Spark schemas from the types of records (`schema`). To add a figure, add a
field with a default to a type in `records`.

The types have a package of their own, because `proxy` and `pipeline` may not import each other. Records count
bytes on the wire between client and Weir, so their totals can be compared exactly with the wire. Bytes that
are charged to byte rates have a field of their own.
"""

from weir.usage.groups import GROUPS, ApiGroup
from weir.usage.records import VERSION, ByQuota, TraceRecord, UsageRecord

__all__ = ["GROUPS", "VERSION", "ApiGroup", "ByQuota", "TraceRecord", "UsageRecord"]
