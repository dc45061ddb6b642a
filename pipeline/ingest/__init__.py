"""Ingest recorded usage from files or a topic into tables, each record exactly once, even after a kill at any
time.

- Spark's checkpoint stores the files or offsets of each micro-batch. After a kill, Spark repeats the batch;
  the tables add the rows of a batch at most once (`lake.append_once`).
- Records have natural keys (`parse.IngestKind`). A record whose key the tables have already is a duplicate,
  for example of a restored file, and is counted, not added.
- A line that is not a valid record becomes a row of the table `rejected`, with the reason.
"""
