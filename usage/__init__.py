"""What was used: the records that Weir writes and the pipeline reads, each defined once, here.

Sans-IO, and imports nothing of ours: `proxy/` fills records, `pipeline/` derives its Spark schemas from them.
`quotas/` says what may be used, this room what was.
"""

from usage.groups import GROUPS, Group
from usage.records import VERSION, ByQuota, TraceRecord, UsageRecord

__all__ = ["GROUPS", "VERSION", "ByQuota", "Group", "TraceRecord", "UsageRecord"]
