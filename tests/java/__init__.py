"""Java's own clients and tools, of any Kafka release: a Python process starts Java and calls them by py4j.

What each does is in two modules: X.py has a job for it, X_worker.py does the job in the other process.
"""
