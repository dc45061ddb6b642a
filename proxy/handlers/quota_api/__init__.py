"""DescribeClientQuotas and AlterClientQuotas, answered by Weir (KIP-546)."""
