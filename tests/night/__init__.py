"""Planted problems: which line, page, event and metric tells an operator about each, and after how long.

Each problem has a `weir run` of its own, in front of stub brokers, and a few raw clients. `watch` reads the
log and the admin endpoint as an operator's programs would; `planted` has the problems.
"""
