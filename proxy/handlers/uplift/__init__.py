"""Versions that the broker lacks, translated to versions that it has."""

# mypyc: skip, because these requests are rare, so compiling would only make the build longer.
