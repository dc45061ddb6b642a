"""Replay: what quota files would have made of recorded use, by the code that enforces quotas."""
