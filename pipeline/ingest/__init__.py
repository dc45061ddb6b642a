"""Ingest recorded usage from files or a topic into tables, each record exactly once, even after a kill at any
time.

- A micro-batch replaces the partitions that have its number. So a batch that Spark repeats after a kill
  replaces its own earlier output: no transaction log is needed, and any file system is suitable.
- The watermark (the time before which a record is late) is computed from the output of earlier batches.
  Spark's own watermark drops late records silently, and may decide differently when a batch is repeated.
- Each stream has its own watermark; a stream is an instance of Weir, in a topic one of its partitions. Spark
  reads partitions unevenly, and a common watermark made whole partitions of a backlog late.
"""
