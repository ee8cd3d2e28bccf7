"""trial.plot: what is drawn is what is kept, and what is not finite is seen."""

import math
import pathlib

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")
pytest.importorskip("tdbg._capture", reason="the extension modules are not built")
pytest.importorskip("tdbg._trial", reason="the extension modules are not built")

import tdbg  # noqa: E402
from matplotlib import pyplot  # noqa: E402
from matplotlib.colors import to_rgb  # noqa: E402
from tdbg import errors  # noqa: E402
from tdbg._capture import Run  # noqa: E402
from tdbg.reading import plot  # noqa: E402

PLAN = """{"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
  {"name": "weights", "kinds": ["weight"], "keep": true, "raw": {"train": {"interval": 2}}},
  {"name": "losses", "kinds": ["loss"], "keep": true}]}"""
STEPS = 6


def kernel(step):
    return np.random.default_rng(step).standard_normal((3, 2, 5, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    path = tmp_path_factory.mktemp("plot") / "run"
    run = Run.open(directory=str(path), plan_json=PLAN)
    conv = run.define("Net_conv.weight", "conv.weight", "weight", "conv", "float32", [3, 2, 5, 5])
    big = run.define("Net_a.weight", "a.weight", "weight", "linear", "float32", [40, 20])
    loss = run.define("Loss_output_0", "loss", "loss", "", "float32", [])
    for step in range(STEPS):
        run.begin_step(1)
        run.put_array(conv, kernel(step))
        values = np.random.default_rng(step).standard_normal((40, 20)).astype(np.float32)
        values[0, 0] = {3: math.nan, 4: math.inf}.get(step, 0)
        run.put_array(big, values * (step != 1))
        run.put_array(loss, np.array(math.nan if step == 4 else 10.0 ** -step, np.float32))
        run.end_step()
    run.end("done")
    yield tdbg.open(path)
    pyplot.close("all")


def test_a_series_shows_its_numbers_and_marks_what_is_not_finite(trial):
    ax = trial.plot.series("losses", "value").axes[0]
    line, cross = ax.lines
    np.testing.assert_allclose(line.get_ydata()[[0, 1, 5]], [1, 0.1, 1e-5], rtol=1e-6)
    assert cross.get_xdata().tolist() == [4] and ax.get_yscale() == "log"


def test_a_series_draws_each_mode_as_a_line_of_its_own(tmp_path):
    run = Run.open(directory=str(tmp_path / "run"), plan_json=PLAN)
    loss = run.define("Loss_output_0", "loss", "loss", "", "float32", [])
    for mode, value in ((1, 3.0), (1, 2.0), (2, 8.0), (1, 1.0), (2, 9.0)):
        run.begin_step(mode)
        run.put_array(loss, np.array(value, np.float32))
        run.end_step()
    run.end("done")
    ax = tdbg.open(tmp_path / "run").plot.series("losses", "value").axes[0]
    drawn = {line.get_label(): (line.get_xdata().tolist(), line.get_ydata().tolist()) for line in ax.lines}
    assert drawn == {"Loss_output_0 (TRAIN)": ([0, 1, 3], [3, 2, 1]), "Loss_output_0 (EVAL)": ([2, 4], [8, 9])}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(drawn)
    assert len({line.get_linestyle() for line in ax.lines}) == 2


def _cells(figure):
    """The colour of each cell: rows of tensors, columns of steps."""
    figure.canvas.draw()
    meshes = figure.axes[0].collections
    shape = meshes[0].get_array().shape
    colours = np.full((*shape, 3), np.nan)
    for mesh in meshes:
        drawn = mesh.get_array()
        seen = ~np.ma.getmaskarray(drawn)
        colours[seen] = mesh.get_facecolors().reshape(*shape, 4)[seen][:, :3]
    return colours


def test_a_heat_map_has_a_row_per_layer_in_the_models_order_and_shows_what_is_no_number(trial):
    figure = trial.plot.heatmap("weights", "mean_abs")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["conv.weight", "a.weight"]
    cells = _cells(figure)
    assert cells.shape == (2, STEPS, 3)
    for step, colour in [(1, plot._ZERO), (3, plot._NAN), (4, plot._INF)]:
        np.testing.assert_allclose(cells[1, step], to_rgb(colour), atol=0.01)
        assert not np.allclose(cells[0, step], to_rgb(colour), atol=0.05)
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["NaN", "infinite", "zero"]


def test_a_heat_map_of_many_steps_keeps_the_worst_of_each_stretch(trial):
    cells = _cells(trial.plot.heatmap("weights", "mean_abs", most_steps=2))
    assert cells.shape == (2, 2, 3)
    np.testing.assert_allclose(cells[1, 1], to_rgb(plot._NAN), atol=0.01)  # of steps 3, 4 and 5


def test_images_are_a_column_per_step_grey_and_without_ticks(trial):
    figure = trial.plot.images("conv.weight", item=1)
    assert len(figure.axes) == 9
    assert [ax.get_title() for ax in figure.axes[:3]] == ["0", "2", "4"]
    for row in range(3):
        for column, step in enumerate([0, 2, 4]):
            ax = figure.axes[3 * row + column]
            np.testing.assert_array_equal(ax.images[0].get_array(), kernel(step)[row, 1])
            assert ax.images[0].get_cmap().name == "gray" and len(ax.get_xticks()) == len(ax.get_yticks()) == 0
    figure = trial.plot.images("conv.weight", item=1, channels=[2])
    assert len(figure.axes) == 3
    np.testing.assert_array_equal(figure.axes[1].images[0].get_array(), kernel(2)[2, 1])
    with pytest.raises(errors.InvalidArgumentError, match="3 of them, there is no 3"):
        trial.plot.images("conv.weight", channels=[0, 3])
    with pytest.raises(errors.InvalidArgumentError, match="2 input channels"):
        trial.plot.images("conv.weight", item=2)
    with pytest.raises(errors.NotFoundError, match="raw"):
        trial.plot.images("loss", steps=[])


def test_histograms_are_drawn_at_the_steps_that_have_one(tmp_path):
    plan = PLAN.replace('"minor": 0', '"minor": 2, "histograms_every": 4')
    run = Run.open(directory=str(tmp_path / "run"), plan_json=plan.replace('"raw": {"train": {"interval": 2}}', '"raw": {}'))
    big = run.define("Net_a.weight", "a.weight", "weight", "linear", "float32", [40, 20])
    for step in range(9):
        run.begin_step(1)
        run.put_array(big, np.full((40, 20), 1 + step / 100, np.float32))
        run.end_step()
    run.end("done")
    trial = tdbg.open(tmp_path / "run")
    tensor = trial.tensor("a.weight")
    assert tensor.steps(kind="histogram") == [0, 4, 8] and tensor.steps() == list(range(9))
    assert tensor.histogram(4).count.sum() == 800
    with pytest.raises(errors.NotFoundError, match="not at this step; histograms are kept at steps: 0, 4, 8"):
        tensor.histogram(5)
    with pytest.raises(errors.NotFoundError, match="at steps: 0, 4, 8"):
        tensor.summary(5).quantile(0.5)
    mesh, = trial.plot.histograms("a.weight").axes[0].collections[:1]
    np.testing.assert_allclose(np.asarray(mesh.get_array()).reshape(-1, 3).sum(axis=0), 1)


def test_histograms_over_time_hold_all_elements(trial):
    figure = trial.plot.histograms("a.weight", steps=[0, 2, 5])
    shares = figure.axes[0].collections[0].get_array()
    np.testing.assert_allclose(np.asarray(shares).sum(axis=0), 1, rtol=1e-9)
    # Half of them are below zero, as was written.
    edges = figure.axes[0].collections[0].get_coordinates()[:, 0, 1]
    assert np.asarray(shares)[edges[1:] <= 0].sum(axis=0) == pytest.approx(0.5, abs=0.06)
    with pytest.raises(errors.NotFoundError):
        trial.plot.histograms("loss", steps=[])


PICTURES = {
    "series": 'trial.plot.series("losses", "value")',
    "heatmap": 'trial.plot.heatmap("weights", "mean_abs")',
    "histograms": 'trial.plot.histograms("conv.weight")',
    "images": 'trial.plot.images("conv.weight")',
    "with a semicolon": 'trial.plot.series("losses", "value");',
    "kept": 'figure = trial.plot.series("losses", "value")',
    "again": "figure",
    "kept and named": 'figure = trial.plot.series("losses", "value")\nfigure',
    "displayed": 'figure = trial.plot.series("losses", "value")\ndisplay(figure)',
    "displayed and closed": 'figure = trial.plot.series("losses", "value")\ndisplay(figure)\nplt.close(figure)',
    "changed": 'figure = trial.plot.series("losses", "value")\nfigure.axes[0].set_ylim(0, 2);',
    "in axes of the notebook's": '_, (left, right) = plt.subplots(1, 2)\ntrial.plot.series("losses", "value", ax=left)',
    "in a loop": 'for _ in range(2):\n    display(trial.plot.series("losses", "value"))',
    "pickled": "import pickle\npickle.loads(pickle.dumps(trial.plot.series('losses', 'value')))\nplt.close('all')",
}


def test_a_notebook_shows_a_picture_once(trial, monkeypatch, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(tdbg.__file__).parents[1]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    begin = f"import tdbg\nimport matplotlib.pyplot as plt\ntrial = tdbg.open({trial.path!r})"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in (begin, *PICTURES.values())])
    nbclient.NotebookClient(notebook, timeout=120).execute()
    shown = {name: sum("image/png" in output.get("data", {}) for output in cell.outputs)
             for name, cell in zip(PICTURES, notebook.cells[1:])}
    assert shown == {**dict.fromkeys(PICTURES, 1), "in a loop": 2, "pickled": 0}
