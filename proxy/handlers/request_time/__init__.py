"""Request time: the estimated cost of each request for its broker (KIP-124)."""
