"""TLS on both sides: contexts of files that may change, handshakes, principals of certificates."""

# mypyc: skip, because it works once per connection or start, and OpenSSL takes the time.
