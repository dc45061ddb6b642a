"""Asking brokers on connections of Weir's own: which there are, which versions they speak."""
