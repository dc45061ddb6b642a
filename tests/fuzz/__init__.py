"""Fuzzing of every decoder that reads peers' bytes: `make fuzz`, `python -m tests.fuzz`.

A `Target` (target.py) takes any bytes and raises nothing, or it has found a fault. The module's docstring says
which errors the decoder documents; where a second decoder reads the same bytes, the results are compared.
`targets/` has a module per kind of decoder. `guided.py` keeps inputs that reach new branches and changes them
further (`mutate.py`). Seeds are frames made from the schemas at run time. `growth.py` has inputs with many
elements, and `work.py` counts what they cost.

The loop is our own. atheris 3.0.0 (libFuzzer) was tried on 2026-11-22: 16,000 inputs per second of CPU against
11,000 with `sys.settrace`, four codecs in each. It is 35 MB for Linux only, ends the process, and does not
see scanners that are compiled at run time unless each is instrumented when it is made; with that, the target
`field-offsets` had not begun after four minutes. The loop runs in the tests' own process with every Python.

The admin endpoint has no target: Starlette and Hypercorn (h11) parse its requests.

`hashing.py` sends gigabytes through a real `weir run` and compares hashes at both ends.
"""
