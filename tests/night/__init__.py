"""Planted problems: which line, page, event and metric tells an operator about each, and after how long.

    python -m tests.night [NAME...]

Each problem has a `weir run` of its own, in front of stub brokers, and a few raw clients. `watch` reads the
log and the admin endpoint as an operator's programs would; `planted` has the problems; `broker` is a stub
broker that refuses logins. The table of `docs/background/night.md` is the output.
"""
