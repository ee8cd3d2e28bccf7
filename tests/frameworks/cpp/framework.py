"""C++ in the conformance suite: training.cc, a program that opens its run itself. Everything happens in its process; what
it saw it leaves in a file, and while a check watches its steps it waits for an answer after each."""

import contextlib
import os
import pathlib
import subprocess
import tempfile

import numpy as np
from frameworks.conformance.framework import STEPS, Framework, Step, Trained

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("TDBG_BUILD", ROOT / "build"))
PROGRAM = BUILD / "tests" / "frameworks" / "cpp" / "cpp_training"
PARAMETERS = ("mlp_fc1.weight", "mlp_fc1.bias", "mlp_fc2.weight", "mlp_fc2.bias")
TREES = "there are no trees"
SECONDS = 120


class Cpp(Framework):
    title = "C++, a loop of one's own"
    second = "same run"
    late = "step"
    python = False
    default = ("weights", "biases", "gradients", "losses", "metrics")
    names = {
        "weights": ["mlp_fc1.weight", "mlp_fc2.weight"],
        "biases": ["mlp_fc1.bias", "mlp_fc2.bias"],
        "gradients": [f"gradient/{p}" for p in PARAMETERS],
        "losses": ["mlp_cross_entropy_output_0"],
        "metrics": ["mlp_accuracy"],
        "outputs": ["mlp_tanh_output_0", "mlp_output_0"],
        "inputs": ["mlp_input_0"],
        "optimizer_variables": [f"optimizer/{p}/momentum" for p in PARAMETERS],
        "labels": ["mlp_labels"],
        "predictions": ["mlp_predictions"],
        "hyperparameters": ["hyperparameters/learning_rate", "hyperparameters/momentum"],
    }
    absent = {"feature_importance": TREES, "average_shap": TREES, "full_shap": TREES, "trees": TREES}

    def __init__(self):
        self._run = None        # (directory, file of its plan)

    def version(self):
        return subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout.strip()

    @contextlib.contextmanager
    def attached(self, directory, config):
        from tdbg.adaptors.plan import resolve_plan
        directory = resolve_plan(directory, config).directory
        self._run = directory, os.path.join(directory, "plan.json")
        try:
            yield
        finally:
            self._run = None

    def train(self, steps=STEPS, after_step=None):
        return self._program("train", steps, after_step)[0]

    def train_again(self):
        return self._program("again")[:1]

    def train_two(self):
        return self._program("two")

    def command(self, out, scenario):
        return [str(PROGRAM), out, scenario]

    def left(self, out):
        return read(out)[0]

    def _program(self, scenario, steps=STEPS, after_step=None):
        """What one process saw: a Trained for each file that it left."""
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "seen")
            command = [*self.command(out, scenario), "--steps", str(steps)]
            if self._run:
                command += ["--run", self._run[0], "--plan", self._run[1]]
            if after_step:
                command.append("--ask")
            environment = {k: v for k, v in os.environ.items() if k != "TDBG_RUN"}
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=environment) as process:
                mistake = self._answer(process, after_step) if after_step else None
                _, err = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, err
            found = [read(path) for path in (out, out + ".second") if os.path.exists(path)]
            assert found[0][1] == (str(mistake) if mistake else None), "what the program raised is what came out of its frames"
            if mistake:
                raise mistake
            return [trained for trained, _ in found]

    def _answer(self, process, after_step):
        """Answers the program's questions; the exception that it was told to raise."""
        mistake = None
        for line in process.stdout:
            run = self._run
            try:
                after_step(int(line.split()[1]))
                answer = "go" if self._run == run else "open {}\n{}".format(*self._run)
            except Exception as error:
                mistake, answer = error, f"raise {error}"
            process.stdin.write(answer + "\n")
            process.stdin.flush()
        return mistake


def read(path):
    """(the Trained that the program wrote, the text of what it raised or None)."""
    steps, final, result, raised = [], {}, b"", None
    with open(path, encoding="ascii") as file:
        for line in file.read().splitlines():
            what, _, rest = line.partition(" ")
            if what == "step":
                steps.append(Step(rest, {}))
            elif what == "result":
                result = bytes.fromhex(rest)
            elif what == "raised":
                raised = rest
            else:
                name, dtype, shape, text = rest.split(" ")
                array = np.frombuffer(bytes.fromhex(text), dtype).reshape([int(n) for n in shape.split(",") if n])
                (steps[-1].values if what == "value" else final)[name] = array
    return Trained(steps, result, final), raised
