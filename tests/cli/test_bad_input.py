"""What users mistype, point at, and find broken: a clear line, a documented exit code, nothing started."""

import fcntl
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest
from program import BINARY

USAGE, NOT_FOUND, DAMAGED, REFUSED, UNSUPPORTED, NOT_JUDGED = 2, 4, 5, 6, 7, 8

BAD_FLAGS = [
    # arguments, what the message must hold
    (["statsu"], ["unknown command 'statsu'", "tdbg status"]),
    (["run", "--rul", "x", "--", "true"], ["unknown flag '--rul'", "--rule"]),
    (["run", "python", "train.py"], ["put -- in front", "tdbg run -- python"]),
    (["run", "--dir", "d"], ["no command"]),
    (["status"], ["RUN"]),
    (["status", "a", "b"], ["'b'", "too many"]),
    (["ls", "--", "true"], ["'--'"]),
    (["run", "--rule", "vanishing_gradeint", "--", "true"], ["vanishing_gradeint", "vanishing_gradient"]),
    (["run", "--rule", "vanishing_gradient", "treshold=1", "--", "true"], ["treshold", "threshold"]),
    (["run", "--rule", "vanishing_gradient:threshold=tiny", "--", "true"], ["threshold", "tiny"]),
    (["run", "--rule", "vanishing_gradient", "--rule", "vanishing_gradient", "--", "true"], ["VanishingGradient"]),
    (["run", "--rule", "exploding_tensor:tensor_regex=(", "--", "true"], ["tensor_regex", "("]),
    (["run", "--on-issue", "halt", "--", "true"], ["--on-issue", "halt", "stop"]),
    (["run", "--collect", "wieghts:10", "--", "true"], ["wieghts", "weights"]),
    (["run", "--collect", "weights:0", "--", "true"], ["weights:0", "at least 1"]),
    (["run", "--summaries", "often", "--", "true"], ["--summaries", "often"]),
    (["run", "--journal", "lots", "--", "true"], ["--journal", "lots"]),
    (["run", "--when-full", "wait", "--", "true"], ["--when-full", "block", "drop_raw"]),
    (["run", "--budget", "-1", "--", "true"], ["--budget"]),
    (["run", "--config", "missing.yaml", "--", "true"], ["--config", "missing.yaml"]),
    (["rules", "vanishing"], ["vanishing"]),
    (["show", "x", "y", "--raw", "--field", "l2"], ["--raw", "--field"]),
    (["show", "x", "y", "--steps", "1-2"], ["--steps", "1-2"]),
]


@pytest.mark.parametrize("arguments, words", BAD_FLAGS, ids=[" ".join(a) for a, _ in BAD_FLAGS])
def test_mistyped_flags_are_refused_before_anything_starts(tdbg, arguments, words):
    message = tdbg.fails(USAGE, *arguments)
    for word in words:
        assert word in message, message
    assert list(tdbg.directory.iterdir()) == []


@pytest.mark.parametrize("action, word", [
    ("checkpoint_stop:abc", "no number of seconds"), ("capture:", "capture"), ("capture:weights:0", "capture:COLLECTION"),
    ("email:foo", "NAME@HOST"), ("sms:123", "+DIGITS"), ("exec:", "lacks"), ("webhook:http://", "webhook"),
])
def test_an_action_is_refused_by_whatever_prepares_a_run(tdbg, action, word):
    (tdbg.directory / "c.yaml").write_text(json.dumps({"rules": [{"rule": "exploding_tensor", "on_issue": [action]}]}))
    for command, end in (("run", ["--", "true"]), ("plan", [])):  # tdbg.attach asks plan
        for flags in (["--on-issue", action], ["--config", "c.yaml"], ["--rule", "exploding_tensor", f"on_issue={action}"]):
            assert word in tdbg.fails(USAGE, command, *flags, *end)
    assert [path.name for path in tdbg.directory.iterdir()] == ["c.yaml"]
    (tdbg.directory / "c.yaml").write_text(json.dumps({"rules": [{"rule": "exploding_tensor", "parameters": {"action_json": "{"}}]}))
    assert "action_json" in tdbg.fails(USAGE, "plan", "--config", "c.yaml")


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, '{"rules":' + "[" * 100_000 + "]" * 100_000 + "}"])
def test_a_configuration_may_not_nest_without_end(tdbg, text):
    for name in ("deep.json", "deep.yaml"):
        (tdbg.directory / name).write_text(text)
        assert name in tdbg.fails(USAGE, "plan", "--config", name)
    assert "deep.json: too many or too deeply nested values" in tdbg.fails(USAGE, "plan", "--config", "deep.json")


def test_a_name_that_is_not_there_comes_with_those_that_are(tdbg, golden):
    assert "did you mean 'conv1.weight'?" in tdbg.fails(NOT_FOUND, "show", golden, "Net_konv1.weight")
    assert "tdbg tensors" in tdbg.fails(NOT_FOUND, "show", golden, "zzzzzz")
    name = "gradient/Net_conv1.weight"
    assert "there are: worker_0" in tdbg.fails(NOT_FOUND, "show", golden, name, "--worker", "nobody")
    assert "; there are: count " in tdbg.fails(USAGE, "show", golden, name, "--field", "q")
    missing = tdbg.fails(NOT_FOUND, "show", golden, name, "--attempt", "7")
    assert "there are: 0)" in missing and "run.json" not in missing


def test_dump_says_what_it_takes(tdbg, golden):
    message = tdbg.fails(USAGE, "dump", golden)
    named = shlex.split(message)[-1]
    assert "directory" in message and tdbg("dump", named).returncode == 0
    (tdbg.directory / "train.py").write_text("import torch\n")
    message = tdbg.fails(DAMAGED, "dump", "train.py")
    assert "neither a journal" in message and "segment" in message


def test_watching_what_is_not_there_yet_says_that_it_waits(tdbg):
    watching = tdbg.start("watch", "soon", stderr=subprocess.PIPE)
    assert "no run at soon yet; waiting" in watching.stderr.readline()
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=20)


def test_a_place_that_cannot_be_written_says_what_to_do(tdbg):
    (tdbg.directory / "file").write_text("")
    assert "--dir" in tdbg.fails(REFUSED, "run", "--dir", "file/run", "--", "true")
    tiny = tdbg.directory / "tiny"
    tiny.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tiny], capture_output=True).returncode:
        pytest.skip("a small file system needs root")
    try:
        (tiny / "full").write_bytes(b"0" * 65536)
        assert "free space" in tdbg.fails(REFUSED, "run", "--dir", tiny / "run", "--", "true")
    finally:
        subprocess.run(["umount", tiny], check=True)


BAD_FILES = [
    ("debug.yaml", "summaries:\n  every: 1\nrulse: []\n", ["debug.yaml:3", "rulse", "rules"]),
    ("debug.yaml", "summaries:\n  evrey: 1\n", ["debug.yaml:2", "evrey", "every"]),
    ("debug.yaml", "a: [1\nb: 2\n", ["debug.yaml:", "YAML"]),
    ("debug.yaml", "budget: 1GB\nbudget: 2GB\n", ["debug.yaml:2", "budget", "twice"]),
    ("debug.yaml", "rules:\n  - rule: vanishing_gradient\n    parameters: {treshold: 1}\n", ["debug.yaml:2", "treshold"]),
    ("debug.yaml", "collections:\n  mine:\n    include_regex: ['(']\n", ["debug.yaml:", "("]),
    ("debug.json", '{"summaries": {"every": 1},\n "rulse": []}\n', ["debug.json:2", "rulse", "rules"]),
    ("debug.json", '{"budget": "1GB",}\n', ["debug.json", "line 1"]),
]


@pytest.mark.parametrize("name, text, words", BAD_FILES, ids=[" ".join(w) for _, _, w in BAD_FILES])
def test_a_mistake_in_a_file_is_pointed_at(tdbg, name, text, words):
    (tdbg.directory / name).write_text(text)
    message = tdbg.fails(USAGE, "run", "--config", name, "--", "true")
    for word in words:
        assert word in message, message
    assert not (tdbg.directory / "tdbg-runs").exists()


def test_flags_win_over_the_file_and_the_file_over_the_environment(tdbg):
    (tdbg.directory / "e.yaml").write_text("summaries: {every: 2}\nbudget: 3GB\nstep_by: forward\n")
    (tdbg.directory / "f.yaml").write_text("summaries: {every: 3}\nbudget: 4GB\n")
    tdbg.ok("plan", "--dir", "d", "--config", "f.yaml", "--summaries", "5", "--histograms", "20", env={"TDBG_CONFIG": "e.yaml"})
    plan = json.loads((tdbg.directory / "d" / "plan.json").read_text())
    assert plan["histograms_every"] == 20
    assert (plan["summaries_every"], plan["budget_bytes"], plan["step_by"]) == (5, 4_000_000_000, "forward")


def test_a_configuration_may_come_by_standard_input_or_inline(tdbg):
    tdbg.ok("plan", "--dir", "a", "--config", "-", stdin="when_full: block\n")
    assert "block" in (tdbg.directory / "a" / "plan.json").read_text()
    tdbg.ok("plan", "--dir", "b", env={"TDBG_CONFIG": '{"when_full": "block"}'})
    assert "block" in (tdbg.directory / "b" / "plan.json").read_text()
    assert "$TDBG_CONFIG" in tdbg.fails(USAGE, "plan", "--dir", "c", env={"TDBG_CONFIG": '{"when_ful": "block"}'})


def test_a_command_that_does_not_exist_is_127_and_leaves_no_run(tdbg):
    assert "no-such-command" in tdbg.fails(127, "run", "--", "no-such-command")
    assert not (tdbg.directory / "tdbg-runs").exists()


def test_a_command_that_may_not_be_executed_is_126(tdbg):
    (tdbg.directory / "train.py").write_text("print(1)\n")
    assert "python ./train.py" in tdbg.fails(126, "run", "--", "./train.py")
    assert not (tdbg.directory / "tdbg-runs").exists()


@pytest.mark.parametrize("command", ["status", "tensors", "check", "stop"])
def test_what_is_no_run_is_said_to_be_none(tdbg, command):
    (tdbg.directory / "thesis").mkdir()
    (tdbg.directory / "thesis" / "chapter.tex").write_text("x")
    extra = ["--rule", "vanishing_gradient"] if command == "check" else []
    tdbg.fails(NOT_FOUND, command, "thesis", *extra)
    assert "nothing-here" in tdbg.fails(NOT_FOUND, command, "nothing-here", *extra)
    assert "no run" in tdbg.fails(NOT_FOUND, command, "last", *extra)


def test_somebodys_directory_is_not_made_a_run(tdbg):
    (tdbg.directory / "thesis").mkdir()
    (tdbg.directory / "thesis" / "chapter.tex").write_text("x")
    assert "chapter.tex" in tdbg.fails(REFUSED, "run", "--dir", "thesis", "--", "true")
    assert [p.name for p in (tdbg.directory / "thesis").iterdir()] == ["chapter.tex"]


def test_a_run_of_a_newer_format_is_refused_and_not_touched(tdbg, golden):
    info = json.loads((golden / "run.json").read_text())
    info["format"]["major"] = 99
    (golden / "run.json").write_text(json.dumps(info))
    for arguments in (["status", golden], ["tensors", golden], ["run", "--dir", golden, "--", "true"]):
        assert "99" in tdbg.fails(UNSUPPORTED, *arguments)
    assert [p.name for p in golden.iterdir() if p.name.isdigit()] == ["0"]


def segment_of(run):
    return next((run / "0" / "worker_0" / "segments").iterdir())


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped"])
def test_a_damaged_segment_is_named_and_costs_only_itself(tdbg, golden, damage):
    segment = segment_of(golden)
    data = bytearray(segment.read_bytes())
    if damage == "truncated":
        data = data[:len(data) // 2]
    elif damage == "empty":
        data = bytearray()
    else:
        for i in range(len(data) // 2, len(data), 64):
            data[i] ^= 0xFF
    segment.write_bytes(data)
    report = tdbg.json("status", golden, code=DAMAGED)
    assert any(segment.name in line for line in report["damage"]), report["damage"]
    assert "damaged" in tdbg("status", golden).stdout
    assert tdbg("tensors", golden).returncode in (NOT_FOUND, DAMAGED)
    assert tdbg("steps", golden).returncode == DAMAGED


def test_every_command_that_reads_says_by_5_that_something_is_damaged(tdbg, golden):
    whole = golden.parent / "whole"
    shutil.copytree(golden, whole)
    commands = [["status", "RUN"], ["tensors", "RUN"], ["steps", "RUN"], ["ls", golden.parent], ["explain", "RUN"], ["metrics", "RUN"],
                ["show", "RUN", "gradient/Net_conv1.weight"], ["diff", "RUN", "RUN"], ["export", "RUN", "out.csv", "--to", "csv", "--force"]]
    for command in commands:
        done = tdbg(*[whole if word == "RUN" else word for word in command])
        assert done.returncode == 0, (command, done.stderr)
    assert tdbg("dump", segment_of(golden)).returncode == 0
    data = bytearray(segment_of(golden).read_bytes())
    for i in range(len(data) // 2, len(data), 64):
        data[i] ^= 0xFF
    segment_of(golden).write_bytes(data)
    commands.append(["dump", segment_of(golden)])
    for command in commands:
        done = tdbg(*[golden if word == "RUN" else word for word in command])
        assert done.returncode == DAMAGED and done.stderr.startswith("tdbg: "), (command, done)
    rule = ["--rule", "all_zero", "collection_names=gradients"]
    for command in ("check", "watch"):  # a rule that lacks something says more than 5
        done = tdbg(command, golden, *rule)
        assert done.returncode == NOT_JUDGED and "damaged place" in done.stdout and segment_of(golden).name in done.stdout, done


def test_a_file_that_is_damaged_is_dumped_as_far_as_it_goes(tdbg, golden):
    (tdbg.directory / "events.jsonl").write_text('{"kind": "a"}\n{"kind": "b"}\n{"ki')
    done = tdbg("dump", "events.jsonl")
    assert done.returncode == DAMAGED and '{"kind":"b"}' in done.stdout and '{"ki' in done.stderr, done


def test_a_run_that_one_may_not_read_is_not_called_none(tdbg):
    """Found by pointing at a colleague's: runs are 0700."""
    nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    if nobody and subprocess.run(["test", "-x", BINARY], **nobody).returncode != 0:
        pytest.skip(f"{BINARY} is below a directory that only root may enter")
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        run = pathlib.Path(directory, "theirs")
        run.mkdir()
        run.chmod(0)
        for command in (["status", run], ["check", run, "--rule", "exploding_tensor"], ["watch", run, "--rule", "exploding_tensor"]):
            done = subprocess.run([BINARY, *command], cwd=directory, env=tdbg.env, capture_output=True, text=True, timeout=30, **nobody)
            assert done.returncode == REFUSED and f"no permission to read {run}" in done.stderr and "--shared" in done.stderr, done
        run.chmod(0o700)


def test_unknown_tensors_and_steps_say_what_there_is(tdbg, golden):
    tdbg.fails(NOT_FOUND, "tensors", golden, "no-such-tensor")
    assert "Net_conv1.weight" in tdbg.fails(NOT_FOUND, "show", golden, "gradient/Net_conv1.wieght")
    tdbg.fails(NOT_FOUND, "show", golden, "gradient/Net_conv1.weight", "--steps", "90:95")
    tdbg.fails(USAGE, "tensors", golden, "(")
    tdbg.fails(USAGE, "show", golden, "gradient/Net_conv1.weight", "--field", "maen")


def test_a_run_that_is_held_is_refused(tdbg, golden):
    with open(golden / "0" / "worker_0" / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        message = tdbg.fails(REFUSED, "run", "--dir", golden, "--", "true")
        assert "worker_0" in message and "--dir" in message
    tdbg.ok("run", "--quiet", "--dir", golden, "--", "true")
    assert (golden / "1" / "attempt.json").exists()


def test_a_second_launcher_in_the_same_run_is_refused(tdbg):
    first = tdbg.start("run", "--quiet", "--dir", "r", "--", sys.executable, "-c",
                       "import os, time; open('ready', 'w').close(); time.sleep(60)")
    tdbg.wait_for("ready")
    assert "another tdbg" in tdbg.fails(REFUSED, "run", "--dir", "r", "--", "true")
    first.send_signal(signal.SIGTERM)
    assert first.wait(20) == 128 + signal.SIGTERM


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_refused(tdbg):
    (tdbg.directory / "ro").mkdir(mode=0o555)
    tdbg.fails(REFUSED, "run", "--dir", "ro/run", "--", "true")


@pytest.mark.parametrize("command, flag, number", [
    ("show", "--attempt", "-5"), ("tensors", "--attempt", "99999999999999999999"), ("capture", "--steps", "99999999999999999999"),
    ("capture", "--steps", "0"), ("diff", "--rtol", "nan"), ("diff", "--atol", "-1"), ("diff", "--rtol", "inf")])
def test_a_number_out_of_range_is_refused_with_what_is_accepted(tdbg, golden, command, flag, number):
    others = {"show": ["a"], "diff": [golden], "capture": ["--collection", "weights"]}.get(command, [])
    message = tdbg.fails(USAGE, command, golden, *others, flag, number)
    assert f"{flag}: found '{number}', expected" in message and "of at least" in message and len(message) < 250


def test_an_error_is_one_line_whatever_the_names_in_it_hold(tdbg, golden):
    for arguments in (["status", "a\nb"], ["rules", "a\nb"], ["show", golden, "a\nb"], ["tensors", golden, "--attempt", "a\nb"]):
        done = tdbg(*arguments)
        assert done.returncode != 0 and len(done.stderr.splitlines()) == 1, done.stderr
    (tdbg.directory / "odd\x1b[31mname").symlink_to(golden)
    assert "\x1b" not in tdbg.ok("status", "odd\x1b[31mname").stdout
