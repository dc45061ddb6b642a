"""Recording usage: taken from the books once an interval, handed to a thread, written to files or a topic."""
