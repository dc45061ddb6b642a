"""ApiVersions: the versions that clients may negotiate (KIP-35, KIP-511)."""
