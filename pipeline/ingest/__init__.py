"""Ingest: recorded usage, from files or a topic, into tables; each record once, whatever is killed when."""
