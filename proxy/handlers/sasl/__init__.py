"""SASL exchanges: read while they pass, they tell the client's principal."""

# mypyc: skip, because a connection logs in once; compiling would only make the build longer.
