"""What people read fits 100 columns: of every command, healthy, faulty, damaged and mistaken.

Not so an error, which is one line whatever its length, and, where they are piped, a run in the list of `ls`, a rule in that of `status`
and what is said at the moment when it is found (tests/cli/test_found.py has it on a terminal)."""

import shutil
import sys
import textwrap

import pytest
from program import GOLDEN

FAULTY = """
    import torch
    torch.manual_seed(0)
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
        def forward(self, x):
            return self.second(torch.relu(self.first(x)))
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 1e20)
    for _ in range(12):
        loss = torch.nn.functional.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 1))
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    """


def said_by(done):
    """What there is to read; of a command that could not begin the error is left out."""
    listed = done.stdout.partition("\n\n")[2] if done.args[1] == "status" and "--verbose" not in done.args else done.stdout
    return listed + (done.stderr if done.returncode in (0, 1, 5) else "")


def too_wide(text):
    """Lines that could have been broken: a word that is wider than what its column leaves, as a path may be, stays whole."""
    def breakable(line):
        longest = max(map(len, line.split()))
        return longest <= 90 and len(line) - len(line.lstrip()) + longest <= 100

    return [line for line in text.splitlines() if len(line) > 100 and breakable(line) and not line.startswith("tdbg: ISSUE  ")]


@pytest.mark.long
def test_of_a_run_that_went_wrong(tdbg):
    (tdbg.directory / "train.py").write_text(textwrap.dedent(FAULTY))
    said = {}
    for name, arguments in {"all": ["--rule", "all"], "profile": [],
                            "stop": ["--rule", "exploding_tensor", "--on-issue", "stop"]}.items():
        done = tdbg("run", *arguments, "--dir", name, "--", sys.executable, "train.py")
        said[f"run {name}"] = said_by(done)
        for command in (["status", name], ["status", name, "--verbose"], ["check", name], ["explain", name],
                        ["tensors", name], ["tensors", name, "--all"], ["steps", name], ["plan"], ["rules"], ["jobs"],
                        ["show", name, "gradient/Net_first.weight"], ["show", name, "gradient/Net_first.weight", "--step", "3"],
                        ["diff", "all", name], ["check", name, "--rule", "all"]):
            done = tdbg(*command)
            said[" ".join(command)] = said_by(done)
    for rule in ("exploding_tensor", "vanishing_gradient"):
        said[f"rules show {rule}"] = tdbg.ok("rules", "show", rule).stdout
    assert len(said) > 40
    wide = {command: lines for command, text in said.items() if (lines := too_wide(text))}
    assert not wide, "\n".join(f"{command}: {line}" for command, lines in wide.items() for line in lines)


def test_of_mistakes_damage_and_nothing(tdbg, golden):
    (tdbg.directory / "nothing.py").write_text("import torch\nmodel = torch.nn.Linear(2, 1)\nmodel(torch.ones(1, 2)).sum().backward()\n")
    (tdbg.directory / "bad.yaml").write_text("collections: {weights: {save_interval: often}}\n")
    shutil.copytree(GOLDEN, tdbg.directory / "damaged", dirs_exist_ok=True)
    for segment in (tdbg.directory / "damaged").rglob("*.safetensors"):
        segment.write_bytes(segment.read_bytes()[:200])
    said = {}
    for command in (["run", "--dir", "n", "--", sys.executable, "nothing.py"], ["run", "--config", "bad.yaml", "--", "true"],
                    ["run", "--rule", "exploding_tensr", "--", "true"], ["run", "--dir", "t", "--", "true"], ["run", "--", "/nowhere"],
                    ["plan", "--config", "bad.yaml"], ["status", "n"], ["check", "n"], ["explain", "n"], ["status", "t"], ["status", "nowhere"],
                    ["status", golden], ["check", golden], ["explain", golden], ["steps", golden], ["tensors", golden], ["export", golden],
                    ["doctor"], ["doctor", golden], *([c, "--help"] for c in ("run", "status", "check", "show", "export", "view", "jobs"))):
        done = tdbg(*command)
        said[" ".join(map(str, command))] = said_by(done)
    wide = {command: lines for command, text in said.items() if (lines := too_wide(text))}
    assert not wide, "\n".join(f"{command}: {line}" for command, lines in wide.items() for line in lines)
