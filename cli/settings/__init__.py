"""Settings on the command line: options and environment variables made from the keys of the configuration.
Also the commands `weir check` (find mistakes) and `weir config` (write a first configuration file, show the
settings).

A new key needs a line in `sections`.
"""
