"""What is on the wire in tests: frames of any message, the few messages that most tests send, a connection.

Made by struct and the codec; the codec's own tests do not use it.
"""
