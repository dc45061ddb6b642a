"""Ingest: recorded usage, from files or a topic, into tables; each record once, whatever is killed when.

- A micro-batch is written by replacing the partitions with its number. A batch that Spark repeats after a
  kill replaces its own leavings: no transaction log is needed, and any file system will do.
- The watermark is computed from what earlier batches have written: Spark's drops late records without a
  word, and a repeated batch must decide as the first time.
- It is kept per stream (an instance; in a topic also a partition): partitions are read unevenly, and one
  watermark for all made whole partitions of a backlog late.
"""
