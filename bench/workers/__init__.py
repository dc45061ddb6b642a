"""Measure Weir with several workers, in front of two stub brokers: `python -m bench.workers`.

`stand` starts brokers and Weir. `scaling` loads both brokers through one worker and through two workers,
`crowd` opens many connections and keeps them, `churn` opens new ones at a steady rate. `report` makes the
tables.
"""
