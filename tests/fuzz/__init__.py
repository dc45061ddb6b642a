"""Fuzzing of every decoder that reads peers' bytes: `make fuzz`, `python -m tests.fuzz`.

A `Target` (target.py) takes any bytes and raises nothing, or it has found a fault. Its docstring says which
errors the decoder documents, and which independent result it compares. `targets/` has a module per decoder.
`guided.py` runs one target under atheris (libFuzzer), which keeps inputs that reach new code; `mutate.py` makes
inputs without that guidance, for tests. Seeds are frames made from the schemas at run time. `growth.py` has
inputs that grow without limit, and `work.py` counts what they cost.

The admin endpoint has no target: Starlette and Hypercorn (h11) parse its requests.

`hashing/` sends gigabytes through a real `weir run` and compares hashes at both ends.
"""
