"""Run the tests lane by lane, and report the tests that ran, their times, and the tests that did not run:
`python -m tools.lanes`.

A lane is a set of tests with the same needs, such as a broker. `make test` runs the core of each lane, `make
test-all` runs all tests, and CI runs the core and a tenth of the other tests.
"""
