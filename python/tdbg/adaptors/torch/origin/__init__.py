"""Where a NaN was born: the first operation, parameter or input that was not finite, found in the graph that autograd
keeps.

`values.py` looks at tensors, `graph.py` at what nodes kept; `operations.py`, `proofs.py` and `derivatives.py` know what
an operation can do, `updates.py` what an optimizer can; `walk.py` finds the birth of a loss that is not finite,
`backward.py` that of gradients. None of them knows a session; `watch.py` does.
"""
