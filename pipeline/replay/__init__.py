"""Replay: apply quota files to recorded usage, with the code that enforces quotas."""
