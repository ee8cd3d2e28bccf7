"""The black box: all that one training step was computed from, in two files, and the way back (docs/black-box.md).

`random_states.py` reads and restores random states, `structure.py` converts a model's arguments to JSON and tensors and
back, `file.py` writes and reads the two files, `opened.py` is an opened black box. None of them knows a session or a
run: the torch adaptor decides when a step is kept (`adaptors/torch/black_box.py`) and replays one
(`adaptors/torch/replay.py`). PyTorch only.
"""
