"""Tests of the demonstration: its words and numbers, and one run of it."""
