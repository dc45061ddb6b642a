"""Settings on the command line: options and environment variables made from the keys of the configuration.

Also the commands that check, show and begin a configuration. A new key needs a line in `sections`.
"""
