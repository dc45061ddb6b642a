"""Snapshots: frozen records of the state of this process, for operators.

`records` has the types of all records; the admin endpoint, the page and `weir top` show these records.
"""
