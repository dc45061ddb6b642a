"""Usage records: written by Weir, read by the pipeline, defined here once.

Sans-IO. `proxy/` fills records, `pipeline/` derives its Spark schemas from them.
"""

from usage.groups import GROUPS, Group
from usage.records import VERSION, ByQuota, TraceRecord, UsageRecord

__all__ = ["GROUPS", "VERSION", "ByQuota", "Group", "TraceRecord", "UsageRecord"]
