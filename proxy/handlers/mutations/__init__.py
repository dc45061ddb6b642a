"""Partition mutations: creation, growth and deletion of topics, and automatic creation (KIP-599)."""

# mypyc: skip, because these requests are rare, so compiling would only make the build longer.
