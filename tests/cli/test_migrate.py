"""`tdbg migrate` through the program, and what it prints given to the program: every command of examples/sagemaker has a
plan, and every key that it takes for smdebug's is one to the reader of configurations."""

import json
import os
import pathlib
import pty
import subprocess

import pytest
from program import BINARY, ROOT

EXAMPLES = ROOT / "examples" / "sagemaker"
PLANNED = ("--config", "--rule", "--rule-file", "--tensorboard")  # flags of `run` that decide what is captured and judged


def planned(words):
    """The command as `tdbg plan` takes it."""
    words = words[words.index("run") + 1:words.index("--")]
    groups, taken = [], False
    for word in words:
        if word.startswith("--"):
            taken = word in PLANNED
        groups += [word] * taken
    return groups


def test_what_is_printed_is_accepted(tdbg):
    for path in EXAMPLES.rglob("*"):
        if path.suffix in (".py", ".yaml"):
            target = tdbg.directory / "team" / path.relative_to(EXAMPLES)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    found = tdbg.json("migrate", "team", "--write", "team/here", code=1)
    watched = [job for job in found["jobs"] if "run" in job["words"]]
    assert len(watched) == 11 and len(found["jobs"]) == 12
    tdbg.directory /= "team"
    for number, job in enumerate(watched):
        done = tdbg.ok("plan", "--dir", f"plans/{number}", *planned(job["words"]))
        plan = json.loads((tdbg.directory / "plans" / str(number) / "plan.json").read_text())
        unknown = [line for line in done.stderr.splitlines() if "passed over" in line]
        assert bool(unknown) == ('"key"' in json.dumps(job["config"])), done.stderr
        for one in (job["config"] or {}).get("CollectionConfigurations", ()):
            assert one["CollectionName"] in [collection["name"] for collection in plan["collections"]]


def test_keys_that_are_smdebugs(tdbg):
    documents = pytest.importorskip("tdbg.migrate.documents")
    values = {"include_regex": "a", "reductions": "mean", "include_workers": "one", "tensorboard_dir": "t"}
    hook = {key: values.get(key, "1" if "step" in key or "interval" in key else "False") for key in documents.HOOK_PARAMETERS}
    of_collection = {key: hook.get(key, "True") for key in documents.COLLECTION_PARAMETERS}
    (tdbg.directory / "hook.json").write_text(json.dumps({
        "LocalPath": "run", "S3OutputPath": "s3://b/p", "HookParameters": hook,
        "CollectionConfigurations": [{"CollectionName": "weights", "CollectionParameters": of_collection}]}))
    assert "passed over" not in tdbg.ok("plan", "--config", "hook.json").stderr
    found = tdbg.json("migrate", "hook.json", code=1)
    assert {line["name"] for line in found["files"][0]["lines"] if line["result"] == "changes"} == {"S3OutputPath"}


def test_the_command(tdbg):
    (tdbg.directory / "a.py").write_text("import smdebug.pytorch as smd\nhook = smd.Hook('x')\n")
    (tdbg.directory / "b.py").write_text("import smdebug.profiler.analysis\nfrom smdebug.pytorch import Hook\n" + "#" * 300 + "\n")
    assert "2 lines run unchanged, 0 change" in tdbg.ok("migrate", "a.py").stdout
    done = tdbg("migrate", "a.py", "b.py", ".")
    assert (done.returncode, done.stderr) == (1, "")
    assert max(map(len, done.stdout.splitlines())) <= 100 and "\033" not in done.stdout
    assert "not offered smdebug.profiler.analysis" in done.stdout and done.stdout.count("a.py") == 1
    assert "Hook" in done.stdout and "Hook" not in tdbg("migrate", "b.py", "--changes").stdout
    assert tdbg.json("migrate", "a.py")["counts"]["runs"] == 2
    assert "no such file" in tdbg.fails(4, "migrate", "c.py")
    assert tdbg("migrate").returncode == 2 and tdbg("migrate", "--wrong", "a.py").returncode == 2
    (tdbg.directory / "--json.py").write_text("import smdebug\n")
    assert pathlib.Path(tdbg.directory / "--json.py").exists() and tdbg.ok("migrate", "./--json.py").stdout


def test_colour_is_for_a_terminal(tdbg):
    (tdbg.directory / "a.py").write_text("import smdebug.pytorch as smd\n")
    for environment, coloured in (({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
        outer, inner = pty.openpty()
        try:
            done = subprocess.run([str(BINARY), "migrate", "a.py"], cwd=tdbg.directory, env={**tdbg.env, **environment},
                                  stdin=subprocess.DEVNULL, stdout=inner, stderr=subprocess.PIPE, timeout=60)
            os.close(inner)
            inner = -1
            shown = b""
            while b"could not be read" not in b" ".join(shown.split()):
                shown += os.read(outer, 65536)
        finally:
            os.close(outer)
            if inner >= 0:
                os.close(inner)
        assert done.returncode == 0 and (b"\033[32mruns" in shown) == coloured, shown
