"""Ingest: usage records from files or a topic into tables, each record exactly once, also after a kill."""
