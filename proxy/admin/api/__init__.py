"""The JSON API of the admin endpoint: one module per resource.

An `Operation` (`operation`) is a method of a path, with the types of its parameters, body and result.
`resources` lists all of them, `routing` makes routes of them, and `openapi` their description. A new resource
is a module with operations, and a line in `resources`.
"""
