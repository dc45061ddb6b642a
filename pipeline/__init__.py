"""The usage pipeline on Spark: from what was used to what the quotas should be.

Jobs, each a module with a function that takes a Spark session and its options and returns an `Outcome`:
`ingest` (records into tables), `rollup` (tables into hours and days), `recommend` (hours into a quota file),
`replay` (what a quota file would have throttled, by the code of `quotas/` itself), `report` (all of it as one
HTML page). Where the tables are: `lake`; their columns: `tables`. Of our rooms only `quotas` and `usage` are
imported.
"""
