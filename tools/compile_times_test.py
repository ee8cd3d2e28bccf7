import json

import compile_times
import pytest


@pytest.fixture
def build(tmp_path):
    """A build folder whose compiler writes what it is told to write, and fails for src/cli/bad.cc."""
    build = tmp_path / "build"
    build.mkdir()
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\ncase "$4" in *bad.cc) echo "no such thing" >&2; exit 1;; esac\necho made >"$2"\n')
    compiler.chmod(0o755)
    files = [
        "src/trial/trial.cc",
        "src/trial/trial_test.cc",
        "build/batches/src/cli/keep.cc",
        "src/client/a.cc",
        "src/cli/bad.cc",
    ]
    entries = [
        {"directory": str(build), "command": f"{compiler} -o a.o -c {tmp_path / name}", "file": str(tmp_path / name)}
        for name in files
    ]
    (build / "compile_commands.json").write_text(json.dumps(entries))
    return build


def test_each_command_runs_and_leaves_nothing(build, capsys):
    saved = build / "times.json"
    compile_times.main(["--build", str(build), "--jobs", "2", "--save", str(saved), "src/trial", "src/cli/keep.cc"])
    assert set(json.loads(saved.read_text())) == {"src/trial/trial.cc", "src/trial/trial_test.cc", "src/cli/keep.cc"}
    assert not (build / "a.o").exists()
    said = capsys.readouterr().out
    assert "src/trial tests (1 files)" in said and "src/cli (1 files)" in said and "all 3 files" in said


def test_a_folder_is_not_one_that_begins_alike(build, capsys):
    with pytest.raises(SystemExit, match=r"bad\.cc: no such thing"):
        compile_times.main(["--build", str(build), "src/cli"])
    assert "client" not in capsys.readouterr().out


def test_a_compiler_counts_with_what_it_starts(tmp_path):
    spin = "import time\nwhile time.process_time() < 0.2: pass\n"
    (tmp_path / "spin.py").write_text(spin)
    (tmp_path / "compiler").write_text("#!/bin/sh\npython3 spin.py\n")
    (tmp_path / "compiler").chmod(0o755)
    entry = {"directory": str(tmp_path), "command": f"{tmp_path}/compiler -o a.o", "file": "a.cc"}
    assert compile_times.compile_once(entry) >= 0.2


def test_the_dearest_come_first():
    times = {f"src/cli/{i}.cc": float(i) for i in range(40)} | {"src/base/a_test.cc": 1000.0}
    lines = compile_times.report(times).splitlines()
    assert (
        "src/base tests" in lines[0]
        and "1780.0 s  all 41 files" in lines[3]
        and lines[5].endswith("src/base/a_test.cc")
    )
    assert len(lines) == 5 + compile_times.DEAREST
