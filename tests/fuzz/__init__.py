"""Fuzzing of every decoder that reads peers' bytes: `make fuzz`, `python -m tests.fuzz`.

A `Target` (target.py) takes any bytes and raises nothing, or it has found a fault. The module's docstring
says which errors the decoder documents; where a second decoder reads the same bytes, both results are
compared. `targets/` has a module per kind of decoder. `guided.py` keeps inputs that reach new branches and
changes them further (`mutate.py`). Seeds are frames made from the schemas at run time, and the inputs in
`corpus/`: earlier searches found these, and `kept.py` reduced them (`--keep`). `growth.py` has inputs with
many elements, and `work.py` counts what they cost.

The loop is our own: it runs in the tests' process, needs no dependency, and traces the scanners that are
compiled at run time. atheris 3.0.0 (libFuzzer), tried on 2026-11-22, installs and works on Python 3.11. It
needs these scanners instrumented one by one, and in one trial 3,000 inputs of the target `field-offsets` had
not ended after 300 s. It ran about 16,000 inputs per second of CPU in one trial, our loop about 11,000 in
another; the inputs differed, so this is no comparison.

The admin endpoint has no target: Starlette and h11 parse its requests.
"""
