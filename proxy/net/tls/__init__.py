"""TLS on both sides: contexts of files that may change, handshakes, principals of certificates."""
