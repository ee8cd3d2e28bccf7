"""The five scenarios, each a notebook: the program as it was for SageMaker is read by `tdbg migrate`, and what it becomes is
run. Each is executed from its first cell to its last and shows what it promises."""

import os
import pathlib
import re

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
for needed in ("boto3", "ipykernel", "matplotlib", "torch", "tdbg._trial", "tdbg._capture"):
    pytest.importorskip(needed)

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = pathlib.Path(os.environ.get("TDBG_HOME", ROOT / "python"))
BINARY = pathlib.Path(os.environ.get("TDBG_BIN", ROOT / "build" / "tdbg"))
EXAMPLES = ROOT / "examples" / "sagemaker"
# A minute at most where nothing else runs; seven trainings in one cell took 140 s where seven other jobs had the two cores.
pytestmark = pytest.mark.timeout(900)


class Executed:
    """A notebook after its last cell."""

    def __init__(self, notebook):
        self._cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def _cell(self, part):
        (found,) = [cell for cell in self._cells if part in cell.source]
        return found

    def text(self, part):
        outputs = self._cell(part).outputs
        return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in outputs)

    def pictures(self, part):
        return sum("image/png" in o.get("data", {}) for o in self._cell(part).outputs)


@pytest.fixture
def execute(monkeypatch, tmp_path):
    """Executes a notebook of EXAMPLES; with TDBG_NOTEBOOK_OUT, a folder, it is kept there with its outputs."""
    if not BINARY.exists():
        pytest.skip(f"no binary at {BINARY}; build it (make build) or set TDBG_BIN")
    words = tmp_path / "bin"
    words.mkdir()
    (words / "tdbg").symlink_to(BINARY)
    # For who has no `tdbg` beside the interpreter, whose folder the notebooks put first; that one obeys TDBG_CLI.
    for name, value in {"TDBG_CLI": str(BINARY), "TDBG_HOME": str(HOME), "TMPDIR": str(tmp_path),
                        "IPYTHONDIR": str(tmp_path / "ipython"), "XDG_STATE_HOME": str(tmp_path / "state"),
                        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
                        "PYTHONPATH": os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")])),
                        "PATH": f"{words}{os.pathsep}{os.environ['PATH']}"}.items():
        monkeypatch.setenv(name, value)

    def run(name):
        notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
        assert not any(cell.get("outputs") for cell in notebook.cells), "committed without outputs"
        nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
        if os.environ.get("TDBG_NOTEBOOK_OUT"):
            nbformat.write(notebook, pathlib.Path(os.environ["TDBG_NOTEBOOK_OUT"]) / f"{name}.ipynb")
        return Executed(notebook)

    return run


def test_an_event_stops_the_job(execute):
    done = execute("0_stop_by_event")
    assert re.search(r"^ok: .*VanishingGradient, stopping it", done.text("delivery"), re.MULTILINE)
    assert done.text("while True").splitlines()[-1].startswith("Stopped, Stopped")
    first = "RuleEvaluationConditionMet: Evaluation of the rule VanishingGradient at step "
    assert f"VanishingGradient  IssuesFound  {first}" in done.text("StatusDetails")
    assert done.pictures("plot.series") == 1


@pytest.mark.long
def test_the_first_convolution_is_drawn_while_it_learns(execute):
    """With PyTorch's names; with MXNet's, and so with exactly those that there were, in tests/frameworks/mxnet."""
    done = execute("1_live_analysis")
    assert done.pictures("imshow(tensor.value") >= 1 and done.pictures("kernel {channel}") == 6
    assert re.findall(r"'([^']+)'", done.text("tensor_names(collection")) == [
        "Net_conv0.bias", "Net_conv0.weight", "conv0_input_0", "conv0_output_0", "conv0_relu_input_0", "conv0_relu_output_0",
        "gradient/Net_conv0.bias", "gradient/Net_conv0.weight"]
    assert "exit code 0" in done.text("exit code")


@pytest.mark.long
def test_a_training_is_interrupted_and_goes_on(execute):
    done = execute("2_spot_training")
    changes = done.text("transitions")
    assert [line.split(", ")[1] for line in changes.splitlines()].count("Interrupted") == 1, changes
    assert changes.splitlines()[-1].startswith("Completed, Completed")
    assert "'step': 164, 'from': 'optimizer'" in done.text("step_bases")
    assert "410 True" in done.text("range(410)") and done.pictures("axvline") == 1
    assert "VanishingGradient NoIssuesFound" in done.text('rule["RuleConfigurationName"], rule["RuleEvaluationStatus"])')


@pytest.mark.long
def test_every_configuration_of_the_guide_is_run(execute):
    done = execute("3_configurations")
    assert "not known and passed over: HookParameters.key" in done.text("commands.sh\"], capture")
    runs = re.findall(r"^train-\S+\n    completed\n    (.*)\n    (.*)$", done.text("for run in sorted"), re.MULTILINE)
    everything = "['biases', 'context', 'gradients', 'losses', 'weights']"
    assert runs == [
        ("{}", "['gradients', 'losses', 'weights']"),
        ("{'VanishingGradient': 'NoIssuesFound', 'ExplodingTensor': 'NoIssuesFound'}", "['gradients', 'losses', 'weights']"),
        ("{'gone': 'NoIssuesFound'}", "['losses', 'outputs', 'relu_output', 'relus']"),
        ("{'CustomGradientRule': 'NoIssuesFound'}", "['gradients', 'losses']"),
        ("{'VanishingGradient': 'NoIssuesFound'}", "['gradients', 'losses']"),
        ("{'Profile': 'NoIssuesFound'}", everything), ("{'Profile': 'NoIssuesFound'}", everything)]
    assert "[0, 4]" in done.text("twice") and "tensorboard/train" in done.text("tfevents")


@pytest.mark.long
def test_boosting_with_a_rule_and_a_report(execute):
    pytest.importorskip("xgboost")
    done = execute("4_boosting")
    assert "LossNotDecreasing  IssuesFound" in done.text('rules("last")') and "trees: 51" in done.text("print(done.stdout)")
    assert "LossNotDecreasing  NoIssuesFound" in done.text('rules("runs/slow")')
    assert str(list(range(0, 51, 5))) in done.text("train-rmse")
    for part in ("train-rmse", 'def plot_importance', 'plot_importance("gain")', "average_shap"):
        assert done.pictures(part) == 1, part
    report = done.text("CreateXgboostReport")
    assert all(word in report for word in ("xgboost_report.html", "Metrics", "Feature importance", "Residuals", "Labels"))
