"""TLS on either side: contexts of files that may change, handshakes, whom a certificate names."""
