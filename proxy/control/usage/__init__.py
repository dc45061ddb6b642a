"""Usage records: read from the registries once an interval, written to files or a topic on a thread."""
