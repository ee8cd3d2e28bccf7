"""The notebook runs from its first cell to its last beside a training, and shows the pictures it promises."""

import os
import pathlib
import re

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

ROOT = pathlib.Path(__file__).resolve().parents[3]
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))
NOTEBOOK = ROOT / "examples" / "notebooks" / "what_a_layer_sees.ipynb"
SCENARIO = ROOT / "examples" / "sagemaker" / "1_live_analysis.ipynb"  # with PyTorch: tests/python/test_sagemaker_notebooks.py
NAMES = ["conv0_bias", "conv0_input_0", "conv0_output_0", "conv0_relu_input_0", "conv0_relu_output_0",
         "conv0_weight", "gradient/conv0_bias", "gradient/conv0_weight"]


@pytest.fixture
def execute(monkeypatch, tmp_path):
    """Executes a notebook; TDBG_NOTEBOOK_EPOCHS=10 is the whole training. Returns the cell with a text in it, and the outputs
    of such a cell."""
    epochs = os.environ.get("TDBG_NOTEBOOK_EPOCHS", "1")
    for name, value in {"TDBG_HOME": HOME, "PYTHONPATH": os.pathsep.join(filter(None, [HOME, os.environ.get("PYTHONPATH")])),
                        "TMPDIR": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython"),
                        "MPLBACKEND": "module://matplotlib_inline.backend_inline"}.items():
        monkeypatch.setenv(name, value)

    def run(path):
        notebook = nbformat.read(path, as_version=4)
        assert not any(cell.get("outputs") for cell in notebook.cells), "committed without outputs"
        start = next(cell for cell in notebook.cells if "epochs = 10" in cell.source)
        start.source = start.source.replace("epochs = 10", f"epochs = {epochs}")
        nbclient.NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(path.parent)}}).execute()

        def outputs(part, kind):
            (cell,) = [c for c in notebook.cells if c.cell_type == "code" and part in c.source]
            return [o.data[kind] for o in cell.outputs if kind in o.get("data", {})]

        return notebook, outputs

    return run


def test_the_notebook_shows_activations_live_and_kernels_afterwards(execute):
    """TDBG_NOTEBOOK_OUT=FILE keeps it, with its pictures."""
    notebook, outputs = execute(NOTEBOOK)
    assert outputs("training_ended", "image/png")
    assert re.findall(r"'([^']+)'", outputs("tensor_names(collection", "text/plain")[0]) == NAMES
    assert len(outputs("output channel", "image/png")) == 6
    assert len(outputs("plot.series", "image/png")) == 1
    assert "ended" in "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", ()))
    save = os.environ.get("TDBG_NOTEBOOK_OUT")
    if save:
        nbformat.write(notebook, save)


def test_the_scenario_has_the_names_that_there_were(execute):
    _, outputs = execute(SCENARIO)
    assert re.findall(r"'([^']+)'", outputs("tensor_names(collection", "text/plain")[0]) == NAMES
    assert outputs("imshow(tensor.value", "image/png") and len(outputs("kernel {channel}", "image/png")) == 6
