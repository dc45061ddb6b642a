"""Tests of the demonstrations: output, measurement, and whole runs."""
