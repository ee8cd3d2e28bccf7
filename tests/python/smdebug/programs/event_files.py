"""What tools and smdebug's own tests do: a run written file by file, and read back file by file."""

import glob
import os

from common import OUT, tell
import numpy as np
from smdebug import modes
from smdebug.core.access_layer.utils import training_has_ended
from smdebug.core.collection_manager import CollectionManager
from smdebug.core.config_constants import DEFAULT_COLLECTIONS_FILE_NAME
from smdebug.core.locations import IndexFileLocationUtils, TensorboardFileLocation, TensorFileLocation
from smdebug.core.reader import FileReader
from smdebug.core.writer import FileWriter
from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdebug.trials import create_trial

found = {"refused": []}
TENSORS = {
    "float": np.arange(6, dtype="f4").reshape(2, 3), "double": np.linspace(0, 1, 5), "half": np.ones((2, 1, 2), "f2"),
    "int": np.array([-3, 2], "i4"), "long": np.array([[2 ** 40]]), "byte": np.arange(3, dtype="u1"),
    "truth": np.array([True, False]), "complex": np.array([1 + 2j]), "scalar": 3.5, "list": [1.0, 2.0], "tuple": (1, 2),
    "transposed": np.arange(6.0).reshape(2, 3).T, "device:0": np.ones(2), "zero_d": np.array(2.0),
}
for step in (0, 10, 1000):
    with FileWriter(OUT, worker="algo-1", step=step) as writer:
        try:
            writer.name()
        except SMDebugRuntimeError:
            found["refused"].append("name")
        for name, value in TENSORS.items():
            writer.write_tensor(tdata=value, tname=name, mode=modes.TRAIN if step else modes.EVAL, mode_step=step // 10)
        writer.write_tensor(tdata=np.array(["a", "bcd", "\u00e9"]), tname="texts", mode=None)
        writer.write_tensor(np.zeros(2), "hidden", write_index=False)
        writer.write_shape("shaped", (3, 4), modes.TRAIN, step // 10, original_name="Shaped:0")
        try:
            writer.write_tensor(np.zeros(1), "x", mode="TRAIN")
        except SMDebugValueError:
            found["refused"].append("mode")
        try:
            writer.write_tensor(np.zeros(1, "M8[s]"), "x")
        except TypeError:
            found["refused"].append("dtype")
        path = writer.name()
    found[f"path {step}"] = os.path.relpath(path, OUT)
    assert path == TensorFileLocation(step, "algo-1").get_file_location(trial_dir=OUT)
    assert os.path.exists(IndexFileLocationUtils.get_index_key_for_step(OUT, step, "algo-1"))
with FileWriter(os.path.join(OUT, "tb"), "host", step=7, wtype="tensorboard", mode=modes.EVAL) as writer:
    writer.write_scalar_summary("loss: x", 0.5, 7)
    writer.write_histogram_summary(np.linspace(-1, 1, 101), "weights", 7)
    found["tensorboard"] = os.path.relpath(writer.name(), OUT)
assert TensorboardFileLocation(7, "host", mode=modes.EVAL).get_file_location(os.path.join(OUT, "tb")) == writer.name()
found["files"] = sorted(os.path.relpath(f, OUT) for f in glob.glob(os.path.join(OUT, "**"), recursive=True)
                        if os.path.isfile(f))
manager = CollectionManager()
manager.add("default")
manager.get("default").tensor_names = list(TENSORS)
manager.create_collection("numbers")
manager.get("numbers").include("^(int|long)$")
manager.export(OUT, DEFAULT_COLLECTIONS_FILE_NAME.replace("worker_0", "algo-1"))
training_has_ended(OUT)

with FileReader(TensorFileLocation(10, "algo-1").get_file_location(trial_dir=OUT)) as reader:
    found["read"] = [[name, step, str(value.dtype.kind), list(value.shape), value.reshape(-1).astype("U").tolist(),
                      mode.name, mode_step] for name, step, value, mode, mode_step in reader.read_tensors()]
    assert reader.read_events(regex_list=["nothing"]) == []
events = FileReader(path).read_events(regex_list=["^int", "scal"])
found["events"] = [[e["name"], e["step"], np.asarray(e["value"]).tolist()] for e in events]
trial = create_trial(OUT)
del TENSORS["complex"]      # JSON has none
trial_names = trial.tensor_names()
found["names"] = trial_names
found["modes"] = sorted(mode.name for mode in trial.modes())
found["steps"] = {mode.name: trial.steps(mode) for mode in modes}
found["workers"] = trial.workers()
found["numbers"] = trial.tensor_names(collection="numbers")
found["shape"] = [list(trial.tensor("shaped").shape(10)), trial.tensor("shaped").steps(),
                  "shaped" in trial.tensor_names(step=1000)]
found["values"] = {name: [np.asarray(trial.tensor(name).value(s)).tolist() for s in trial.steps()] for name in TENSORS}
tell(found)
