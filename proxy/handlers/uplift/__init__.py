"""Translation of requests from versions that the broker lacks to versions that the broker has."""
