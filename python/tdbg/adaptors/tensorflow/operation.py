"""The operation that records a tensor where a graph computes it and passes it on (python/src/graph_capture.h).

It runs on the host alone: with a GPU in sight TensorFlow would move tensors for it, so there it is not to be had.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tdbg import _capture

from ...words import error_text
from ..guard import pass_on

#: What is recorded: numbers. XLA knows no operation of ours.
DTYPES = frozenset((tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8,
                    tf.uint16, tf.uint32, tf.uint64, tf.bool))


def record(tensor: Any, slot: int, after: Sequence[Any] = ()) -> Any:
    """`tensor` (of a graph), recorded under the slot of a GraphCapture whenever it is computed. What is returned is the
    same tensor behind that; whoever uses it waits for it, and for `after`."""
    from tensorflow.python.framework import op_def_library
    with tf.control_dependencies(after):
        return op_def_library.apply_op(_capture.GraphCapture.OPERATION, value=tensor, slot=slot)


@functools.cache
def why_not() -> str:
    """Why this TensorFlow does not take the operation; empty if it does, which is tried."""
    if tf.config.list_physical_devices("GPU"):
        return "there is a GPU"
    folder = tf.sysconfig.get_lib()
    libraries = sorted(name for name in os.listdir(folder) if name.startswith("libtensorflow_framework.so"))
    if not libraries:
        return "libtensorflow_framework is not where it was"
    missing = _capture.GraphCapture.install(os.path.join(folder, libraries[-1]))
    if missing:
        return missing
    try:
        passed = tf.function(lambda x: record(x, -1) + 1.0)(tf.constant([1.0, 2.0]))
        return "" if passed.numpy().tolist() == [2.0, 3.0] else "it does not pass tensors on"
    except Exception as error:
        pass_on(error)
        return error_text(error)
