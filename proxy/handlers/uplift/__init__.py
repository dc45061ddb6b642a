"""Uplift: clients use versions that the broker lacks, and Weir translates them to versions that the broker
has.

`uplift_rule` says which versions are offered, and why others are not; `uplift` makes their plans. Requests in
versions that the broker has are not slowed down: uplift adds nothing to their plans.

Produce and Fetch are not uplifted: brokers from 0.10 on have versions of both with a throttle time, and these
requests, which carry the data, must not be slowed down. Uplift never changes the meaning of a request.
"""

# mypyc: skip, because these requests are rare, so compiling would only make the build longer.
