"""Replay: what quota files would have made of recorded use, by the code that enforces quotas.

- Charges are sorted by budget and time and streamed through Python, with the state of one budget at a time:
  a group of `applyInPandas` lies in memory as a whole, and a heavy client's trace does not fit. One budget
  is sequential, so the work of one core.
- Connections that fetch again after the same throttle time are woken at once, and those that get nothing
  are told in one step: a thousand connections told a thousand times would be work that grows with their
  square.
- The hold of a new connection's first request is not replayed: the recorded times have it.
- Each quota is replayed by itself: how they interact is in the recorded times, and a model of clients with
  several waits would be guesswork on top.
"""
