"""Runs the tests lane by lane, and says what ran, for how long, and what did not: `python -m tools.lanes`.

A lane is a set of tests that are run alike. `make test` runs the core of each lane, `make test-all` all of
it, CI the core and a third of what remains.
"""
