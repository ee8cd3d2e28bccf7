"""The notebook runs from its first cell to its last, with a training beside it, and finds what was planted."""

import os
import pathlib
import re

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
for needed in ("ipykernel", "matplotlib", "pandas", "torch", "tdbg._trial", "tdbg._capture"):
    pytest.importorskip(needed)

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = pathlib.Path(os.environ.get("TDBG_HOME", ROOT / "python"))
BINARY = pathlib.Path(os.environ.get("TDBG_BIN", ROOT / "build" / "tdbg"))
NOTEBOOK = ROOT / "examples" / "notebooks" / "find_the_layer.ipynb"


def outputs(cell, kind):
    return [o.data[kind] for o in cell.outputs if kind in o.get("data", {})]


def test_the_notebook_finds_the_layer(monkeypatch, tmp_path):
    if not BINARY.exists():
        pytest.skip(f"no binary at {BINARY}; build it (make build) or set TDBG_BIN")
    monkeypatch.setenv("TDBG_CLI", str(BINARY))
    monkeypatch.setenv("TDBG_HOME", str(HOME))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")])))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "committed without outputs"
    client = nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(NOTEBOOK.parent)}})
    client.execute()
    by_source = {cell.source: cell for cell in notebook.cells if cell.cell_type == "code"}

    def cell(part):
        (found,) = [c for source, c in by_source.items() if part in source]
        return found

    # Opened while it trained, looked at until it was over.
    opened = "".join(o.get("text", "") for o in cell("for step in trial").outputs)
    assert re.search(r"(running|ended) at step 60", opened), opened
    assert "ended 239" in "".join(o.get("text", "") for o in cell("job.wait()").outputs)
    for part in ("heatmap(\"gradients\"", "heatmap(\"weights\"", "histograms(", "images("):
        assert outputs(cell(part), "image/png"), part
    dead = outputs(cell("dead.groupby"), "text/plain")[0]
    assert all(name in dead for name in ("Net_conv1.weight", "Net_conv2.weight", "Net_fc1.weight"))
    assert "fc1.bias" not in dead and "fc2" not in dead
    rates = outputs(cell("context/lr/"), "text/plain")[0]
    assert re.search(r"^120\s+0\.025\s+25\.0+\s+0\.025\s+0\.025\s*$", rates, re.MULTILINE), rates
    assert "conv2" in outputs(cell("optimizer/SGD"), "text/plain")[0].split("]")[1]
    save = os.environ.get("TDBG_NOTEBOOK_OUT")
    if save:
        nbformat.write(notebook, save)
