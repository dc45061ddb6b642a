"""Versions that the broker lacks, translated to versions that it has."""
