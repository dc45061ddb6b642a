"""Versions that the broker lacks, translated to versions that it has.

`uplift_rule` says which versions are offered, and why others are not; `uplift` makes their plans. Clients
without uplift pay nothing: an API that is not uplifted has nothing added to its plan.

Produce and Fetch are not uplifted: every version that brokers from 0.10 speak has the throttle time, and
nothing may be added to that path. Uplift never changes the meaning of a request.
"""

# mypyc: skip, because these requests are rare, so compiling would only make the build longer.
