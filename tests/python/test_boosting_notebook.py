"""Scenario 4: the notebook on boosting runs from its first cell to its last; the rule's two verdicts are the expected ones."""

import os
import pathlib

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
for needed in ("ipykernel", "matplotlib", "xgboost", "tdbg._trial", "tdbg._capture"):
    pytest.importorskip(needed)

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = pathlib.Path(os.environ.get("TDBG_HOME", ROOT / "python"))
BINARY = pathlib.Path(os.environ.get("TDBG_BIN", ROOT / "build" / "tdbg"))
NOTEBOOK = ROOT / "examples" / "notebooks" / "boosting.ipynb"


def test_the_notebook_on_boosting(monkeypatch, tmp_path):
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
    nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()

    def cell(part):
        (found,) = [c for c in notebook.cells if c.cell_type == "code" and part in c.source]
        return found

    def text(part):
        return "".join(o.get("text", "") for o in cell(part).outputs)

    assert "IssuesFound" in text("\nstatus(run)") and "NoIssuesFound" not in text("\nstatus(run)")
    assert "validation-rmse: decrease_percent" in text("\nstatus(run)")
    assert "NoIssuesFound" in text("status(slow)")
    assert f"kept at {list(range(0, 51, 5))}" in text("kept at")
    for part in ("kept at", "plot_importance()", "plot_importance(\"gain\")", "plot(shap)"):
        assert [o for o in cell(part).outputs if "image/png" in o.get("data", {})], part
    save = os.environ.get("TDBG_NOTEBOOK_OUT")
    if save:
        nbformat.write(notebook, save)
