"""Mutation testing, `make mutants`: change single expressions of the code, and list the changes that no test
detects.
"""
