"""Tests of `conformance/`: captures made by hand, by other libraries, and with planted defects."""
