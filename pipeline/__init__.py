"""The usage pipeline on Spark: from usage records to recommended quotas.

Each job is a function that takes a Spark session and options and returns an `Outcome`: `ingest` (records into
tables), `rollup` (records into hours and days), `recommend` (hours into a quota file), `replay` (throttle
times under other quota files, computed by `quotas/`), `report` (the tables as an HTML page). `lake` has the
tables' paths, `tables` their columns. Of Weir's packages, the pipeline imports only `quotas` and `usage`.
"""
