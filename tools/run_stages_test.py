"""The stages name what there is, all of them run whatever one says, and what is told of them is right."""

import json
import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import run_stages  # noqa: E402

RESULTS = """<testsuite><testcase classname="a" name="slow" time="2.5"/><testcase classname="a" name="quick" time="0.1"/>
<testcase classname="a" name="bad" time="0"><failure message="no"/></testcase></testsuite>"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    (tmp_path / "build").mkdir()
    monkeypatch.setattr(run_stages, "ROOT", tmp_path)
    monkeypatch.setattr(run_stages, "Environments", lambda names: Nothing())
    return tmp_path


class Nothing:
    def wait(self):
        pass

    end = wait


@pytest.mark.parametrize("stages", [run_stages.gate(), run_stages.everything()])
def test_stages_are_targets_and_tools_that_are_there(stages):
    targets = re.findall(r"^([a-z][\w-]*):(?!=)", (run_stages.ROOT / "Makefile").read_text(), re.MULTILINE)
    for stage in stages:
        program, first, *_ = stage.command
        assert first in targets if program == "make" else (run_stages.ROOT / program).is_file(), stage
    names = [stage.name for stage in stages]
    assert len(set(names)) == len(names)


def test_the_long_suite_has_all_that_the_gate_has_but_the_smoke_which_is_part_of_its_frameworks():
    assert {stage.name for stage in run_stages.gate()} - {stage.name for stage in run_stages.everything()} == {"smoke"}
    [whole] = [stage for stage in run_stages.everything() if stage.name == "frameworks"]
    assert [path.replace("pytest-", "smoke-") for path in whole.results] == run_stages.gate()[-1].results


def test_every_framework_with_an_environment_has_a_smoke():
    for name in run_stages.frameworks():
        files = (run_stages.ROOT / "tests/frameworks" / name).glob("test_*.py")
        texts = [path.read_text() for path in files]
        # The conformance suite has one that all frameworks share.
        assert any("pytest.mark.smoke" in text or "(Conformance)" in text for text in texts), name


def test_a_stage_that_fails_ends_nothing_and_fails_the_run(root, monkeypatch, capfd):
    (root / "given.xml").write_text(RESULTS.replace('<failure message="no"/>', ""))
    monkeypatch.setattr(run_stages, "everything", lambda: [
        run_stages.Stage("first", ["false"]),
        run_stages.Stage("second", ["cp", "given.xml", "build/second.xml"], ["build/second.xml"])])
    assert run_stages.main(["all"]) == 1
    said = capfd.readouterr().out.splitlines()
    assert "failed stages: first" in said and said[-1] == "3 passed, 0 failed, 0 skipped"
    assert said[said.index("== dearest tests") + 1].split() == ["2.5", "s", "a::slow"]
    record = json.loads((root / "build/test-all.json").read_text())
    assert [(stage["name"], stage["passed"]) for stage in record["stages"]] == [("first", False), ("second", True)]
    assert (record["passed"], record["failed"], record["failures"]) == (3, 0, [])
    assert record["processor"] and record["seconds"] >= 0


def stage_that_counts(name, root, passes=True):
    """Each time it runs, one more line in NAME.ran."""
    command = f"echo >> {root}/{name}.ran; cp given.xml build/{name}.xml; {'true' if passes else 'false'}"
    return run_stages.Stage(name, ["sh", "-c", command], [f"build/{name}.xml"])


def times_run(name, root):
    path = root / f"{name}.ran"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def three(root, monkeypatch):
    """A long suite of three stages, of a commit `a`; the machine is taken away in the second one."""
    (root / "given.xml").write_text(RESULTS.replace('<failure message="no"/>', ""))
    monkeypatch.setattr(run_stages, "commit", lambda: {"commit": "a", "changed": False})
    stages = [stage_that_counts(name, root) for name in ("one", "two", "three")]

    def cut_short():
        raise KeyboardInterrupt

    with monkeypatch.context() as first:
        cut = run_stages.Stage("two", None)
        first.setattr(run_stages, "everything", lambda: [stages[0], cut, stages[2]])
        run = run_stages.run
        first.setattr(run_stages, "run", lambda stage, e: cut_short() if stage is cut else run(stage, e))
        with pytest.raises(KeyboardInterrupt):
            run_stages.main(["all"])
    monkeypatch.setattr(run_stages, "everything", lambda: stages)
    return root


def read_record(root):
    return json.loads((root / "build/test-all.json").read_text())


def test_a_long_suite_that_was_cut_short_goes_on_where_it_was(three, capfd):
    assert not read_record(three)["complete"]
    (three / "build/one.xml").write_text(RESULTS)  # as `make test` by hand, of something else, would
    assert run_stages.main(["all", "--go-on"]) == 0
    assert [times_run(name, three) for name in ("one", "two", "three")] == [1, 1, 1]
    record = read_record(three)
    assert (record["complete"], record["passed"], record["failed"]) == (True, 9, 0)
    assert [stage["name"] for stage in record["stages"]] == ["one", "two", "three"]
    assert "passed before: one" in capfd.readouterr().out


@pytest.mark.parametrize("now", [{"commit": "b", "changed": False}, {"commit": "a", "changed": True}])
def test_what_another_commit_has_passed_says_nothing(three, monkeypatch, now):
    monkeypatch.setattr(run_stages, "commit", lambda: now)
    assert run_stages.main(["all", "--go-on"]) == 0
    assert times_run("one", three) == 2 and read_record(three)["commit"] == now["commit"]


def test_what_failed_before_runs_again(three, monkeypatch):
    bad = stage_that_counts("two", three, passes=False)
    [one, two, last] = run_stages.everything()
    monkeypatch.setattr(run_stages, "everything", lambda: [one, bad, last])
    assert run_stages.main(["all", "--go-on"]) == 1
    monkeypatch.setattr(run_stages, "everything", lambda: [one, two, last])
    assert run_stages.main(["all", "--go-on"]) == 0
    assert [times_run(name, three) for name in ("one", "two", "three")] == [1, 2, 1]


def test_a_test_that_failed_fails_the_run_though_its_stage_says_nothing(root, monkeypatch, capfd):
    (root / "build/ctest.xml").write_text(RESULTS)
    monkeypatch.setattr(run_stages, "gate", lambda: [run_stages.Stage("test", ["true"], ["build/ctest.xml"])])
    assert run_stages.main(["gate"]) == 1
    said = capfd.readouterr().out
    assert "failed: a.bad" in said and said.splitlines()[-1] == "2 passed, 1 failed, 0 skipped"


def test_results_that_are_not_there_fail_the_run(root, monkeypatch, capfd):
    monkeypatch.setattr(run_stages, "gate", lambda: [run_stages.Stage("test", ["true"], ["build/none.xml"])])
    assert run_stages.main(["gate"]) == 1
    assert "no results in" in capfd.readouterr().out


def test_only_a_forge_drops_what_was_built(root, monkeypatch):
    kept = {"ctest.xml", ".ninja_log"}
    (root / "build-asan/sub").mkdir(parents=True)
    for name in (*kept, "sub/test.o"):
        (root / "build-asan" / name).write_text("")
    for ci, there in (("", kept | {"test.o"}), ("true", kept)):
        monkeypatch.setenv("CI", ci)
        run_stages.drop("build-asan")
        assert {path.name for path in (root / "build-asan").rglob("*") if path.is_file()} == there


def test_an_unknown_suite_is_refused(capsys):
    assert run_stages.main([]) == run_stages.main(["some"]) == 2
    assert "tools/run_stages.py gate" in capsys.readouterr().err
