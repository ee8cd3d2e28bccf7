"""The runner: nothing is done twice, what crashes is one case and is said to have crashed, and counts are of what was judged."""

import io
import os
import pathlib
import signal
import subprocess
import sys
import time

import cases
import pytest
import report
import shards
from faults import KINDS

HERE = pathlib.Path(__file__).resolve().parent


def job(folder, name, key="a", result=None, act=lambda: None):
    """Notes in a file that it was done."""
    def do():
        with open(folder / "done.txt", "a") as file:
            file.write(f"{name}\n")
        act()
        return result or {"of": name}
    return shards.Job(name, key, do)


def done(folder):
    path = folder / "done.txt"
    return sorted(path.read_text().split()) if path.exists() else []


def run(folder, jobs, **more):
    out = io.StringIO()
    return shards.run_all(jobs, folder, more.pop("at_once", 2), out=out, **more), out.getvalue()


def test_a_second_go_does_only_what_is_missing_or_changed(tmp_path):
    run(tmp_path, [job(tmp_path, "one"), job(tmp_path, "two")])
    found, said = run(tmp_path, [job(tmp_path, "one"), job(tmp_path, "two", key="b"), job(tmp_path, "three")])
    assert done(tmp_path) == ["one", "three", "two", "two"]
    assert found == {name: {"of": name} for name in ("one", "two", "three")}
    assert "[2 of 3" in said and "[3 of 3" in said


def test_fresh_does_all_again(tmp_path):
    run(tmp_path, [job(tmp_path, "one")])
    run(tmp_path, [job(tmp_path, "one")], fresh=True)
    assert done(tmp_path) == ["one", "one"]


@pytest.mark.parametrize("half", ["", "{", "[]", '{"key": "a"', "null"])
def test_half_a_result_is_no_result(tmp_path, half):
    (tmp_path / "one.json").write_text(half)
    assert run(tmp_path, [job(tmp_path, "one")])[0] == {"one": {"of": "one"}}


@pytest.mark.parametrize("act, why", [
    (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by signal 9"),
    (lambda: os._exit(7), "exit code 7"),
    (lambda: 1 / 0, "exit code 1: ZeroDivisionError: division by zero"),
    (lambda: os._exit(0), "exit code 0")])
def test_a_crash_costs_one_case_and_is_tried_again(tmp_path, act, why):
    found, _ = run(tmp_path, [job(tmp_path, "bad", act=act), job(tmp_path, "one"), job(tmp_path, "two")])
    assert found == {"bad": {"crashed": why}, "one": {"of": "one"}, "two": {"of": "two"}}
    assert run(tmp_path, [job(tmp_path, "bad"), job(tmp_path, "one")])[0]["bad"] == {"of": "bad"}
    assert done(tmp_path) == ["bad", "bad", "one", "two"]


def test_an_earlier_result_does_not_stand_for_a_crash(tmp_path):
    run(tmp_path, [job(tmp_path, "bad")])
    found, _ = run(tmp_path, [job(tmp_path, "bad", key="b", act=lambda: os._exit(0))])
    assert found == {"bad": {"crashed": "exit code 0"}}


def test_what_hangs_is_ended_with_what_it_started(tmp_path):
    def hang():
        (tmp_path / "child.txt").write_text(str(subprocess.Popen(["sleep", "1000"]).pid))
        time.sleep(1000)
    found, _ = run(tmp_path, [job(tmp_path, "slow", act=hang)], limit=0.5)
    assert found == {"slow": {"crashed": "it took too long"}}
    if (tmp_path / "child.txt").exists():
        child = pathlib.Path(f"/proc/{(tmp_path / 'child.txt').read_text()}/stat")
        until = time.monotonic() + 60
        while child.exists() and child.read_text().rsplit(")", 1)[1].split()[0] != "Z" and time.monotonic() < until:
            time.sleep(0.02)
        assert not child.exists() or child.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def interrupt_parent():
    """Until it is taken: one that meets the parent inside a hook of fork() is printed and ignored by Python."""
    while True:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(1)


def test_cut_off_it_keeps_what_is_whole(tmp_path):
    jobs = [job(tmp_path, "one"), job(tmp_path, "two", act=interrupt_parent)]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, jobs, at_once=1)
    run(tmp_path, [jobs[0], job(tmp_path, "two")])
    assert done(tmp_path) == ["one", "two", "two"]


def result(kind, faulty, detectors=(), **more):
    return {"kind": kind, "draw": 0, "faulty": faulty, "detectors": list(detectors), "incidents": [["", 9, ""] for _ in detectors],
            "rules": [], "judged": ["Overfit"], "begins": 0, **more}


def test_what_crashed_is_neither_found_nor_healthy():
    got = report.report([result("detach", True, ["no_gradient"]), result("detach", False), result("rate_zero", True),
                         {"kind": "rate_zero", "draw": 0, "faulty": False, "crashed": "killed by signal 11"},
                         {"kind": "gan", "draw": 0, "faulty": False, "crashed": "exit code 1"}])
    assert [got[row]["found"] for row in ("right cause", "healthy runs alarmed", "crashed")] == [1, 0, 2]
    assert [got[row]["of"] for row in ("right cause", "healthy runs alarmed", "crashed")] == [2, 1, 5]
    assert got["right cause, and a quiet twin"] == {"found": 1, "of": 1, "low": 20.7, "high": 100.0}
    assert "| crashed | 2 of 5 (40 %; 12 to 77) |" in report.table({"all": got})
    assert not report.good({"kind": "gan", "faulty": False, "crashed": "exit code 1"})


def test_hidden_faults_are_counted_apart():
    got = report.report([result("looks_ahead", True, ["loss_back"]), result("detach", True)])
    assert got["right cause"]["of"] == 1 and got["hidden faults with an incident"]["found"] == 1


def test_rules_are_counted_of_what_they_could_judge():
    got = report.report([result("gan", False, rules=["Overfit", "Overfit"]), result("gan", False, judged=[]), result("detach", False)])
    assert got["rules on healthy runs"] == {"Overfit": report.count(1, 2)}


def test_a_case_is_another_one_when_its_code_is(monkeypatch):
    case = {"kind": "overfit", "draw": 0, "faulty": True}
    key, other = cases.key_of(case), cases.key_of({**case, "draw": 1})
    assert key == cases.key_of(dict(case)) and key != other
    assert {"faults.overfit", "faults.few", "workloads.Work", "workloads.Cnn"} <= set(cases.code_of(KINDS["overfit"].put)) \
        | set(cases.code_of(KINDS["overfit"].make))
    assert "workloads.Gan" not in cases.code_of(KINDS["overfit"].make)
    source = cases.inspect.getsource
    monkeypatch.setattr(cases.inspect, "getsource", lambda thing: source(thing).replace("count // 2", "count // 3"))
    assert key != cases.key_of(case)


def test_all_parts_are_of_kinds_that_there_are():
    every = [case for half in cases.HALVES for case in cases.cases(half, range(1))]
    assert len({cases.name_of(case) for case in every}) == len(every)
    assert all(case["kind"] in KINDS or case["kind"] in cases.HEALTHY for case in every)
    assert {case["kind"] for case in every} == set(KINDS) | set(cases.HEALTHY)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q"]))
