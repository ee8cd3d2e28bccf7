"""`tdbg migrate`: what it says of each line, the commands, and what it does with files that are no friends of readers."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

main = pytest.importorskip("tdbg.migrate.main")
report = pytest.importorskip("tdbg.migrate.report")

PROGRAM = """\
import sagemaker
from sagemaker.tensorflow import TensorFlow
from sagemaker.debugger import CollectionConfig, DebuggerHookConfig, ProfilerRule, Rule, rule_configs
import smdebug.pytorch as smd
from smdebug.trials import create_trial

rate = 10
parameters = {"num_epochs": "10", "lr": f"{rate}.00", "width": compute()}
estimator = TensorFlow(
    entry_point="train.py", source_dir="src", hyperparameters=parameters, train_instance_count=1,
    rules=[Rule.sagemaker(rule_configs.vanishing_gradient()),
           Rule.sagemaker(rule_configs.all_zero(), name="gone", rule_parameters={"tensor_regex": "relu|tanh", "threshold": 90},
                          actions=rule_configs.ActionList(rule_configs.StopTraining(), rule_configs.Email("a@b.org"))),
           ProfilerRule.sagemaker(rule_configs.ProfilerReport())],
    debugger_hook_config=DebuggerHookConfig(hook_parameters={"save_interval": "7"},
                                            collection_configs=[CollectionConfig(name="weights")]))
parameters["lr"] = "0.1"
estimator.fit({"train": "s3://b/train"}, wait=False)
hook = smd.Hook.create_from_json_file()
hook.record_trace_events()
hook.save_scalar("a", 1.0)
create_trial("x").tensor("y").value(3)
smd.nothing_of_ours()
"""


@pytest.fixture
def migrate(capsys):
    def run(*words, code=None):
        got = main.main(["--json", *map(str, words)])
        out = capsys.readouterr()
        assert code is None or got == code, out
        return json.loads(out.out) if out.out else out.err
    return run


def lines_of(document, at=0):
    return {(line["line"], line["name"].rsplit(".", 1)[-1]): line["result"] for line in document["files"][at]["lines"]}


def test_each_line_has_its_verdict(migrate, tmp_path):
    (tmp_path / "start.py").write_text(PROGRAM)
    found = lines_of(migrate(tmp_path, code=1))
    for key, result in {(4, "pytorch"): "runs", (5, "create_trial"): "runs", (9, "TensorFlow"): "changes", (11, "sagemaker"): "changes",
                        (3, "ProfilerRule"): "not offered", (18, "fit"): "changes", (19, "create_from_json_file"): "runs",
                        (20, "record_trace_events"): "not offered", (21, "save_scalar"): "runs", (22, "value"): "runs",
                        (23, "nothing_of_ours"): "changes"}.items():
        assert found.get(key) == result, (key, found)


def test_what_is_used_in_several_lines_is_listed_once_with_all_of_them(migrate, capsys, tmp_path):
    """A class that is imported, is a hook's maker and a rule's base; what is said of each line stays in JSON."""
    path = tmp_path / "mine.py"
    path.write_text("from smdebug.pytorch import Hook\nfrom smdebug.rules.rule import Rule\nclass Mine(Rule): pass\n"
                    "class Other(Hook): pass\nhook = Hook('x')\nhook.record_trace_events()\n"
                    + "hook = Hook('y')\n" * 2 + "def more():\n" + "    Hook('z')\n" * 20)
    assert main.main([str(path)]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("smdebug.pytorch.Hook") == 1, shown
    assert "smdebug.pytorch.Hook (also 5, 7, 8, 10, 11, 12, 13, 14 and 15 more)" in shown, shown
    (file,) = migrate(path, code=1)["files"]
    assert [line["line"] for line in file["lines"] if line["name"] == "smdebug.pytorch.Hook"] == [1, 5, 7, 8, *range(10, 30)]
    (tmp_path / "a.ipynb").write_text(notebook("from smdebug.pytorch import Hook", "a = 1\nHook('x')"))
    assert main.main([str(tmp_path / "a.ipynb")]) == 0
    assert "[1] 1 runs smdebug.pytorch.Hook (also [2] 2)" in " ".join(capsys.readouterr().out.split())


def test_a_job_becomes_a_command_and_a_configuration(migrate, tmp_path):
    (tmp_path / "start.py").write_text(PROGRAM)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("import os\nos.environ['SM_CHANNEL_TRAIN'], os.environ['SM_MODEL_DIR']\n")
    (job,) = migrate(tmp_path, "--write", tmp_path / "here", code=1)["jobs"]
    assert job["words"] == [
        "env", "SM_CHANNEL_TRAIN=data/train", "SM_MODEL_DIR=model", "tdbg", "run", "--config", "here/debug.json",
        "--rule", "vanishing_gradient", "--rule", "all_zero", "name=gone", "tensor_regex=relu|tanh", "threshold=90", "on_issue=stop",
        "on_issue=email:a@b.org", "--detach", "--", "python", "src/train.py", "--lr", "10.00", "--model_dir", "model",
        "--num_epochs", "10", "--width", "${WIDTH:?}"]
    assert job["variables"] == {"WIDTH": "compute()"}
    assert any("data/train" in note and "s3://b/train" in note for note in job["notes"])
    assert json.loads((tmp_path / "here" / "debug.json").read_text()) == {
        "HookParameters": {"save_interval": "7"},
        "CollectionConfigurations": [{"CollectionName": "weights"},
                                     {"CollectionName": "gradients", "CollectionParameters": {"save_interval": "500"}}]}
    # What the shell makes of it: the words, wherever it is started, and a refusal where a variable is not set.
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "tdbg").write_text("#!/bin/sh\npwd\nprintf '%s\\n' \"$@\" \"$SM_MODEL_DIR\"\n")
    (fake / "tdbg").chmod(0o755)
    started = {"env": {"PATH": f"{fake}:{os.environ['PATH']}", "WIDTH": "4 'x'"}, "cwd": "/", "capture_output": True, "text": True}
    said = subprocess.run(["bash", str(tmp_path / "here" / "commands.sh")], **started).stdout.splitlines()
    assert said[0] == str(tmp_path.resolve())
    assert said[1:] == [*job["words"][4:-1], "4 'x'", "model"]
    del started["env"]["WIDTH"]
    refused = subprocess.run(["bash", str(tmp_path / "here" / "commands.sh")], **started)
    assert refused.returncode and "WIDTH" in refused.stderr and not refused.stdout
    # Written again: the same is left as it is, anything else is not replaced.
    migrate(tmp_path / "start.py", "--write", tmp_path / "here", code=1)
    (tmp_path / "here" / "debug.json").write_text("mine")
    assert "says something else" in migrate(tmp_path / "start.py", "--write", tmp_path / "here", code=2)
    assert (tmp_path / "here" / "debug.json").read_text() == "mine"


SHAPES = {
    "estimator.Estimator(image_uri='x', rules=[Rule.custom('A', 'i', 't', 1, 'rules/a.py', 'A', rule_parameters={'t': '2'})])":
        ["tdbg", "run", "--rule-file", "rules/a.py:A", "t=2", "--", "python", "${TRAINING_SCRIPT:?}"],
    "pytorch.PyTorch(entry_point='t.py', debugger_hook_config=False)": ["python", "t.py"],
    "pytorch.PyTorch(entry_point='t.py', tensorboard_output_config=TensorBoardOutputConfig('s3://b', '/opt/ml/output/tb'))":
        ["tdbg", "run", "--tensorboard", "tensorboard", "--", "python", "t.py"],
    "pytorch.PyTorch(entry_point='t.py', hyperparameters={'to': '/opt/ml/kept/'}, use_spot_instances=True, max_run=60, "
    "checkpoint_local_path='/opt/ml/kept')":
        ["tdbg", "run", "--checkpoint-dir", "kept", "--max-restarts", "10", "--restart-on", "preempted",
         "--max-runtime", "60", "--", "python", "t.py", "--to", "kept"],
    "mxnet.MXNet('t.sh', hyperparameters={'a': True, 'l': [1], 'n': None, 'p': '/opt/ml/checkpoints'}, entry_point='t.sh')":
        ["tdbg", "run", "--", "sh", "t.sh", "-a", "True", "-l", "[1]", "-n", "", "-p", "checkpoints"],
    "pytorch.PyTorch(entry_point='t.py', rules=[Rule.sagemaker(rule_configs.similar_across_runs(), "
    "other_trials_s3_input_paths=['s3://b/x'])])":
        ["tdbg", "run", "--rule", "similar_across_runs", "other_trials=s3://b/x", "--", "python", "t.py"],
}


@pytest.mark.parametrize("text", SHAPES)
def test_shapes(migrate, tmp_path, text):
    (tmp_path / "a.py").write_text("from sagemaker import estimator, mxnet, pytorch\n"
                                   f"from sagemaker.debugger import *\n{text}\n")
    (job,) = migrate(tmp_path, code=1)["jobs"]
    assert job["words"] == SHAPES[text]


def test_what_two_branches_say_differently_is_not_guessed(migrate, tmp_path):
    (tmp_path / "a.py").write_text("""
from sagemaker.pytorch import PyTorch
rate, same = 1, 2
if big:
    rate = 3
for width in (1, 2):
    PyTorch(entry_point="t.py", hyperparameters={"r": rate, "s": same, "w": width})
PyTorch(entry_point="t.py", hyperparameters={**common, "x": 1})
""")
    first, second = migrate(tmp_path, code=1)["jobs"]
    assert first["words"][-6:] == ["-r", "${R:?}", "-s", "2", "-w", "${W:?}"]
    assert second["words"][-1] == "t.py" and any("{**common" in note for note in second["notes"])


def test_requests_and_hook_configurations(migrate, tmp_path):
    (tmp_path / "request.json").write_text(json.dumps({
        "TrainingJobName": "a", "AlgorithmSpecification": {}, "EnableManagedSpotTraining": True,
        "HyperParameters": {"sagemaker_program": '"t.py"', "lr": "0.1", "name": '"a b"', "sagemaker_region": '"x"'},
        "DebugRuleConfigurations": [
            {"RuleConfigurationName": "mine", "RuleParameters": {"rule_to_invoke": "LossNotDecreasing", "num_steps": "5",
             "action_json": '[{\\"name\\": \\"stoptraining\\"}, {\\"name\\": \\"sms\\", \\"endpoint\\": \\"+123\\"}]'}}],
        "DebugHookConfig": {"S3OutputPath": "s3://b", "CollectionConfigurations": [{"CollectionName": "losses"}]}}))
    (tmp_path / "hook.json").write_text('{\n"LocalPath": "x",\n"HookParameters": {"save_interval": 5,\n"what": 1},\n'
                                        '"CollectionConfigurations": [{"CollectionName": "a", "CollectionParameters": '
                                        '{"train.save_steps": "1,2"}}]}')
    found = migrate(tmp_path, code=1)
    (job,) = found["jobs"]
    assert job["words"] == ["tdbg", "run", "--config", "debug.json", "--rule", "loss_not_decreasing", "name=mine", "num_steps=5",
                            "on_issue=stop", "on_issue=sms:+123", "--checkpoint-dir", "checkpoints", "--max-restarts", "10",
                            "--restart-on", "preempted", "--", "python", "t.py", "--lr", "0.1", "--name", "a b"]
    hook = {(line["line"], line["name"]): line["why"] for line in found["files"][0]["lines"]}
    assert set(hook) == {(2, "LocalPath"), (3, "HookParameters"), (3, "save_interval"), (4, "what"),
                         (5, "CollectionConfigurations"), (5, "train.save_steps")}
    assert "one warning" in hook[(4, "what")]


def notebook(*cells):
    return json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": cell.splitlines(True)} for cell in cells]
                       + [{"cell_type": "markdown", "source": "import smdebug"}]})


def test_a_notebook_is_read_cell_by_cell(migrate, tmp_path):
    (tmp_path / "a.ipynb").write_text(notebook(
        "%matplotlib inline\nfiles = !ls\n!pip install -q \\\n   smdebug\nimport smdebug.pytorch as smd\nsmd?",
        "this is no Python (",
        "%%bash\nimport smdebug",
        "%%time\nhook = smd.Hook('x')\nhook.record_trace_events()"))
    (file,) = migrate(tmp_path, code=1)["files"]
    got = {(line["cell"], line["line"]): line["result"] for line in file["lines"]}
    assert got == {(1, 5): "runs", (2, 1): "not read", (4, 2): "runs", (4, 3): "not offered"}


HOSTILE = {
    "two.py": b"# smdebug\nimport os\nprint 'x'\n",
    "broken.py": b"# smdebug\ndef f(:\n",
    "bytes.py": b"# smdebug \xff\xfe\nimport smdebug\n",
    "encoding.py": b"# -*- coding: no-such -*-\nimport smdebug\n",
    "nul.py": b"import smdebug\n\0\n",
    "deep.py": b"import smdebug\nx = " + b"(" * 5000 + b")" * 5000,
    "long.py": b"import smdebug\nx = " + b"+".join([b"1"] * 30000) + b"\n",
    "minus.py": b"import smdebug\nx = " + b"-" * 30000 + b"1\n",
    "huge.py": b"import smdebug\n" + b"#" * (3 << 20),
    "huge.ipynb": b'{"smdebug": 1, "cells": [{"cell_type": "code", "source": "' + b"#" * (3 << 20) + b'"}]}',
    "list.ipynb": b'["smdebug"]',
    "cells.ipynb": b'{"smdebug": 1, "cells": 5}',
    "deep.ipynb": b'{"smdebug": ' + b"[" * 100000,
    "torn.ipynb": b'{"cells": [{"cell_type": "code", "source": "import smdebug',
    "deep.json": b'{"HookParameters": ' + b'{"a":' * 100000,
    "number.json": b'{"HookParameters": 1' + b"0" * 5000 + b"}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_cannot_be_read_is_said_and_the_others_are_read(migrate, tmp_path, name):
    (tmp_path / name).write_bytes(HOSTILE[name])
    (tmp_path / "z.py").write_text("import smdebug\n")
    found = migrate(tmp_path, code=None)
    files = {os.path.basename(file["path"]): file for file in found["files"]}
    assert [line["result"] for line in files["z.py"]["lines"]] == ["runs"]
    if name not in ("long.py", "minus.py", "number.json"):  # which a Python of another version may read
        assert files[name]["problem"] or "not read" in [line["result"] for line in files[name]["lines"]]
    if name == "two.py":
        assert "Python 2" in files[name]["lines"][0]["why"] and files[name]["lines"][0]["line"] == 3


LARGE = {
    "text.py": "x = 'ab'\n" + "x = x + x\n" * 100 + "y = f'{x}{x}'\n" * 100,
    "list.py": "x = [1]\n" + "x = [x, x]\n" * 100 + "PyTorch(entry_point='t.py', hyperparameters={'x': x}, rules=x)\n",
    "number.py": "x = 9\n" + "x = x * x\n" * 100 + "PyTorch(entry_point='t.py', hyperparameters={'x': x})\n",
    "branches.py": "".join(f"if a:\n  x{n} = 1\n" for n in range(20000)),
    "keys.py": "d = {}\n" + "".join(f"d['{n}'] = 1\n" for n in range(20000)),
    "hook.json": json.dumps({"HookParameters": {f"{n}": 1 for n in range(100000)}}),
    "items.json": json.dumps({"CollectionConfigurations": [{"CollectionParameters": {"a": n}} for n in range(50000)]}),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_grows_out_of_a_file_is_bounded(migrate, tmp_path, name):
    (tmp_path / name).write_text(("from sagemaker.pytorch import PyTorch\n" if name.endswith(".py") else "") + LARGE[name])
    found = migrate(tmp_path, code=None)
    assert found["concerned"] == 1
    if found["jobs"]:
        assert "${X:?}" in found["jobs"][0]["words"]


def test_odd_places_end_and_names_do_nothing_to_a_terminal(migrate, capsys, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.py")
    evil = tmp_path / "a" / "e\033[2J\n\u202ename.py"
    evil.write_text("from sagemaker.pytorch import PyTorch\n"
                    "PyTorch(entry_point='\\033[2J;rm -rf ~', hyperparameters={'x': '$(touch hit) `touch hit` \"\\'\\n'})\n")
    os.symlink(evil, tmp_path / "a" / "same.py")
    (tmp_path / b"\xff.py".decode("utf-8", "surrogateescape")).write_text("import smdebug\n")
    found = migrate(tmp_path, code=1)
    assert len(found["links_not_followed"]) == 1 and len(found["jobs"]) == 1
    assert [file["problem"] for file in found["files"] if file["problem"]] == ["No such file or directory"]
    assert main.main([str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert all(one.isprintable() or one == "\n" for one in shown)
    assert max(map(len, shown.splitlines())) <= report.COLUMNS
    # A shell gives the words back, and runs nothing.
    (job,) = found["jobs"]
    words = job["shell"].replace("tdbg run", "printf '%s\\0'", 1)
    back = subprocess.run(["bash", "-c", words], capture_output=True, cwd=tmp_path).stdout.split(b"\0")
    assert back[-2] == b"$(touch hit) `touch hit` \"'\n" and not (tmp_path / "hit").exists()


def test_nothing_that_is_read_is_run(migrate, tmp_path):
    mark = tmp_path / "mark"
    for name in ("a.py", "sagemaker.py", "smdebug.py", "json.py"):
        (tmp_path / name).write_text(f"import sagemaker, smdebug, pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    room = pathlib.Path(main.__file__)
    done = subprocess.run([sys.executable, "-I", str(room), str(tmp_path)], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0 and "4 files read" in done.stdout, done
    assert not mark.exists()


def test_exit_codes(migrate, tmp_path):
    (tmp_path / "a.py").write_text("import smdebug.pytorch as smd\nsmd.Hook('x').save_scalar('a', 1)\n")
    (tmp_path / "b.txt").write_text("")
    assert migrate(tmp_path, code=0)["counts"] == {"runs": 3, "changes": 0, "not offered": 0, "not read": 0}
    assert "neither a directory nor" in migrate(tmp_path / "b.txt", code=2)
    assert "no such file" in migrate(tmp_path / "c.py", code=4)


def test_thousands_of_files(migrate, tmp_path):
    for folder in range(30):
        (tmp_path / str(folder)).mkdir()
        for file in range(100):
            (tmp_path / str(folder) / f"{file}.py").write_text("import os\n")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "a.py").write_text("import smdebug\n")
    (tmp_path / "7" / "hit.py").write_text("import smdebug\n")
    found = migrate(tmp_path, code=0)
    assert (found["read"], found["concerned"]) == (3001, 1)


def test_on_a_terminal_it_is_said_how_far_it_is(monkeypatch, capsys, tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.py").write_text("import smdebug\n")
    assert main.main([str(tmp_path)]) == 0 and capsys.readouterr().err == ""
    monkeypatch.setattr(main, "_QUIET_SECONDS", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main.main([str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert "\r3 files looked at" in said and said.endswith("\r\033[K")


def test_one_file_is_one():
    from tdbg.migrate.report import Text

    assert " ".join(Text(False, False).summary(1, 1)).startswith("1 file read, 1 of them")
    assert " ".join(Text(False, False).summary(2, 1)).startswith("2 files read, 1 of them")
