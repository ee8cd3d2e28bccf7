"""Which TensorFlow this is, what TF_CONFIG says, and how smdebug names what it saves of Keras."""

import json
from enum import Enum
from importlib import metadata as _metadata

from tdbg.compat.exceptions import SMDebugError

from .._not_offered import INSIDE, not_offered


class ModelOutput:
    LABELS = "smdebug_y"
    PREDICTIONS = "smdebug_y_pred"
    VAL_LABELS = "val_smdebug_y"
    VAL_PREDICTIONS = "val_smdebug_y_pred"


class ModelInput:
    INPUTS = "smdebug_x"


ModelOutputs = {ModelOutput.LABELS, ModelOutput.PREDICTIONS, ModelOutput.VAL_LABELS, ModelOutput.VAL_PREDICTIONS}
ModelInputs = {ModelInput.INPUTS}


class TFDistributionStrategy(Enum):
    NONE = 0
    HOROVOD = 1
    MIRRORED = 2
    PARAMETER_SERVER = 3
    SMDATAPARALLEL = 4
    UNSUPPORTED = 100


def get_model_output_export_name(key) -> str:
    return "predictions" if key in (ModelOutput.PREDICTIONS, ModelOutput.VAL_PREDICTIONS) else "labels"


def get_model_input_export_name() -> str:
    return "model_input"


def get_export_name_for_keras(layer, tensor_type, tensor=None):
    """<layer>/inputs, of a tensor <layer>/inputs/<tensor>; the same for output and weight."""
    if tensor_type not in ("input", "output", "weight"):
        return None
    return f"{layer}/{tensor_type}s" if isinstance(layer, str) else f"{layer.name}/{tensor_type}s/{tensor.name}"


def node_name(n) -> str:
    """The operation of a tensor's name or of a control input's."""
    return n[1:] if n.startswith("^") else n.split(":")[0]


# TF_CONFIG ------------------------------------------------------------------------------------------------------------

def load_tf_config_json(tf_config):
    """TF_CONFIG's text, decoded; None where there is none, or none that can be read."""
    try:
        return json.loads(tf_config)
    except (ValueError, TypeError):
        return None


def is_parameter_server_strategy(tf_config_json) -> bool:
    return bool(tf_config_json) and "ps" in tf_config_json.get("cluster", {})


def get_worker_id_from_tf_config(tf_config_json) -> str:
    """chief_0, worker_1, ..."""
    return f"{tf_config_json['task']['type']}_{tf_config_json['task']['index']}"


def get_num_workers_from_tf_config(tf_config_json) -> int:
    """Workers and chief."""
    cluster = tf_config_json["cluster"]
    return len(cluster["worker"]) + len(cluster.get("chief", ()))


def get_chief_worker_from_tf_config(tf_config_json) -> str:
    if "chief" not in tf_config_json["cluster"]:
        raise SMDebugError("TF_CONFIG names no chief")
    return "chief_0"


# Versions -------------------------------------------------------------------------------------------------------------

def _numbers(text):
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in text.split("+")[0].split(".")[:3])


def _installed():
    for name in ("tensorflow", "tensorflow-cpu", "tf_nightly"):
        try:
            return _numbers(_metadata.version(name))
        except _metadata.PackageNotFoundError:
            pass
    raise ImportError("TensorFlow is not installed")


get_current_version = _installed


def is_tf_version_2x() -> bool:
    return _installed() >= (2,)


def is_tf_version_1_15_x() -> bool:
    return (1, 15) <= _installed() < (2,)


def is_tf_version_2_2_x() -> bool:
    return _installed()[:2] == (2, 2)


def is_tf_version_2_3_x() -> bool:
    return _installed()[:2] == (2, 3)


def is_tf_version_2_4_x() -> bool:
    return _installed()[:2] == (2, 4)


def is_tf_version_greater_than_2_4_x() -> bool:
    return _installed() >= (2, 4)


def does_tf_support_mixed_precision_training() -> bool:
    """Through the interface that smdebug knows, which TensorFlow had up to 2.5."""
    return (2, 1) <= _installed() < (2, 6)


def is_profiler_supported_for_tf_version() -> bool:
    """Nothing of the profiler is offered."""
    return False


def is_current_version_supported(tf_version=None) -> bool:
    """By tdbg: Keras 3, and tf.compat.v1's sessions of TensorFlow 2."""
    return (_installed() if tf_version is None else _numbers(tf_version)) >= (2, 16)


# What looks into TensorFlow's or Keras' objects -----------------------------------------------------------------------

def is_IndexedSlices(grad) -> bool:
    import tensorflow as tf

    return isinstance(grad, tf.IndexedSlices)


def is_valid_tf_tensor(grad) -> bool:
    import tensorflow as tf

    return isinstance(grad, tf.Tensor) and hasattr(grad, "numpy")


def is_mirrored_strategy(strat) -> bool:
    import tensorflow as tf

    return isinstance(strat, tf.distribute.MirroredStrategy)


__getattr__ = not_offered(
    __name__, INSIDE, "supported_tf_variables", "extract_graph_summary", "tensor_can_be_saved", "build_fetches_tuple",
    "get_original_fetch_ops", "is_keras_optimizer", "get_keras_layer_inputs", "get_keras_layer_outputs", "LayerWithHooks",
    "InputOutputSaver", "get_layer_call_fn", "get_non_device_tensors", "get_keras_mode", "TF_VERSION",
    "SUPPORTED_TF_VERSION_THRESHOLD")
