"""DescribeClientQuotas and AlterClientQuotas, answered by Weir (KIP-546)."""

# mypyc: skip, because these requests are rare, so compiling would only make the build longer.
