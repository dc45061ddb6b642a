"""Uplift: clients use versions that the broker lacks, and Weir translates them to versions that the broker
has.

`uplift_rule` says which versions are offered, and why others are not; `uplift` makes their plans. Clients of
other versions pay nothing: uplift adds nothing to the plan of a version that the broker has.

Produce and Fetch are not uplifted: every version that brokers from 0.10 on have contains the throttle time,
and nothing may be added to the path of the data. Uplift never changes the meaning of a request.
"""

# mypyc: skip, because these requests are rare, so compiling would only make the build longer.
