"""Request time: what each request costs a broker (KIP-124)."""
