"""Request time: which requests cost a broker how much (KIP-124)."""
