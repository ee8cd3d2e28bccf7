#!/usr/bin/env python3
"""What a change must pass, stage after stage, whatever the one before said, so that one run shows all faults.

  tools/run_stages.py gate   what every landing must pass (.ci/run): make check, make test, and a smoke of each framework
  tools/run_stages.py all    the long suite (make test-all): everything there is; its results are build/test-all.json, too
  tools/run_stages.py all --go-on   the same without the stages that have passed already, of the same commit: the long
                             suite takes hours, and a machine that was taken away costs the stage that it was in

Beside its seconds a stage says how many processor seconds it used, and which share that is of all cores: a stage with a
small share waits (for a download, or for a test that sleeps). At the end stand what was unstable, what was dearest, what
failed, and how long it all took; the last line counts the tests. Exit status: 0 if all stages passed.
"""

import dataclasses
import datetime
import json
import os
import pathlib
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import ci_times
import summarize_tests

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEAREST = 10
FUZZ_SECONDS = 20  # for each target


RECORD = "build/test-all.json"
RESULTS = "build/test-all"  # the results of each stage of the long suite, which `make test` would write over


@dataclasses.dataclass
class Stage:
    name: str
    command: list
    results: list = dataclasses.field(default_factory=list)  # JUnit files, which must be there afterwards
    needs_environments: bool = False
    leaves: str = ""  # a build folder that nobody needs once its tests have run (6 GB)


def frameworks(root=ROOT):
    """Frameworks that have tests and an environment of their own, as the Makefile has them."""
    names = sorted(path.stem for path in (root / "tools/frameworks").glob("*.txt"))
    return [name for name in names if any((root / "tests/frameworks" / name).glob("test_*.py"))]


def tests(build):
    return [f"{build}/ctest.xml", f"{build}/scenarios.xml"]


def gate():
    return [
        Stage("check", ["make", "check"]),
        Stage("test", ["make", "test"], [*tests("build"), "build/pytest.xml"]),
        Stage("smoke", ["make", "smoke"], [f"build/smoke-{name}.xml" for name in frameworks()], needs_environments=True),
    ]


def everything():
    return [
        Stage("check", ["make", "check"]),
        Stage("docs", ["make", "docs"]),
        Stage("test", ["make", "test", "LONG=1"], [*tests("build"), "build/pytest.xml"]),
        Stage("frameworks", ["make", "test-frameworks"], [f"build/pytest-{name}.xml" for name in frameworks()], needs_environments=True),
        Stage("frameworks-table", ["tools/frameworks_table.py", "--check"]),
        Stage("sanitize-address", ["make", "sanitize-address"], tests("build-asan"), leaves="build-asan"),
        Stage("sanitize-thread", ["make", "sanitize-thread"], tests("build-tsan"), leaves="build-tsan"),
        Stage("fuzz", ["tools/fuzz.sh", str(FUZZ_SECONDS)]),
        Stage("programs", ["make", "test-programs"], ["build/pytest-programs.xml"]),
    ]


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def free_gigabytes():
    return shutil.disk_usage(ROOT).free // 2**30


def drop(folder):
    """Empties a build folder of all but what its tests said, and what took how long. Forges only: others build on it again."""
    if os.environ.get("CI") and folder:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix != ".xml" and path.name != ".ninja_log":
                path.unlink()


class Environments:
    """Makes the frameworks' environments, which are mostly downloads and one thread, beside the first stages."""

    def __init__(self, names):
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(["nice", "tools/setup_framework.sh", *names], cwd=ROOT, stdout=self.said, stderr=self.said)

    def wait(self):
        # A failure is not fatal here: the stage that needs them tries again, and says why.
        if self.process:
            self.process.wait()
            self.process = None
            self.said.seek(0)
            print(self.said.read(), end="", flush=True)

    def end(self):
        if self.process:
            self.process.terminate()
            self.process.wait()


def run(stage, environments):
    """Runs one stage; what the record says of it."""
    print(f"\n== {stage.name}", flush=True)
    if stage.needs_environments:
        environments.wait()
    start, before = time.monotonic(), processor_seconds()
    passed = subprocess.call(stage.command, cwd=ROOT) == 0
    seconds, used = time.monotonic() - start, processor_seconds() - before
    share = 100 * used / max(seconds, 1) / os.cpu_count()
    print(f"== {stage.name}: {seconds:.0f} s, cpu {used:.0f} s, {share:.0f} % of {os.cpu_count()} cores, {free_gigabytes()}G free", flush=True)
    drop(stage.leaves)
    return {"name": stage.name, "passed": passed, "seconds": round(seconds), "cpu_seconds": round(used)}


def kept(result):
    """Where the long suite keeps a results file."""
    return ROOT / RESULTS / result.replace("/", "-")


def keep(stage):
    """Keeps what the tests of a stage said, and said when they were run again."""
    for result in stage.results:
        for there, here in ((ROOT / result, kept(result)), (summarize_tests.again(ROOT / result), summarize_tests.again(kept(result)))):
            here.unlink(missing_ok=True)
            if there.exists():
                here.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(there, here)


def dearest(results, most):
    """[(seconds, test)] of the results files that can be read."""
    times = {}
    for path in results:
        for part in (path, summarize_tests.again(path)):
            try:
                times.update(ci_times.test_times(part.read_text()))
            except (OSError, SyntaxError):  # ParseError is one
                continue
    return sorted(((seconds, "::".join(name)) for name, seconds in times.items()), reverse=True)[:most]


def processor():
    found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def commit():
    """What runs: of a tree that differs from its commit, that it does."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    return {"commit": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain"))}


def passed_before(stages):
    """{name: what the record says} of the stages that this commit has passed."""
    try:
        before = json.loads((ROOT / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    now = commit()
    if now["changed"] or {name: before.get(name) for name in now} != now:
        return {}
    passed = {stage["name"]: stage for stage in before["stages"] if stage["passed"]}
    return {stage.name: passed[stage.name] for stage in stages
            if stage.name in passed and all(kept(result).exists() for result in stage.results)}


def record(stages, summary, complete):
    """What build/test-all.json says: of which commit, on which machine, what passed, and how long it took."""
    return {
        **commit(),
        "complete": complete,  # all stages have run
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "processor": processor(), "cores": os.cpu_count(),
        "seconds": sum(stage["seconds"] for stage in stages),
        "passed": summary.passed, "failed": summary.failed, "skipped": summary.skipped,
        "failures": summary.failures, "unstable": summary.unstable, "stages": stages,
    }


def run_gate():
    """(what the record says of each stage, the summary)"""
    stages, environments = gate(), Environments(frameworks())
    try:
        done = [run(stage, environments) for stage in stages]
    finally:
        environments.end()
    return done, conclude([ROOT / path for stage in stages for path in stage.results])


def run_everything(go_on):
    """As run_gate; the record is written after each stage."""
    stages = everything()
    before = passed_before(stages) if go_on else {}
    if go_on:
        print(f"passed before: {' '.join(before) or 'none of this commit'}", flush=True)
    environments = Environments([] if all(stage.name in before for stage in stages if stage.needs_environments) else frameworks())
    done, results = [], []
    try:
        for stage in stages:
            if stage.name not in before:
                before[stage.name] = run(stage, environments)
                keep(stage)
            done.append(before[stage.name])
            results += [kept(result) for result in stage.results]
            summary = summarize_tests.summarize(results, report=lambda line: None)
            complete = len(done) == len(stages)
            (ROOT / RECORD).write_text(json.dumps(record(done, summary, complete), indent=1) + "\n")
    finally:
        environments.end()
    return done, conclude(results)


def conclude(results):
    """Prints what was dearest, unstable and failed; the summary."""
    print("\n== dearest tests")
    for seconds, name in dearest(results, DEAREST):
        print(f"{seconds:7.1f} s  {name}")
    print(flush=True)
    return summarize_tests.summarize(results, report=lambda line: print(line, flush=True))


def main(arguments):
    if arguments not in (["gate"], ["all"], ["all", "--go-on"]):
        print(__doc__, file=sys.stderr)
        return 2
    suite = arguments[0]
    start = time.monotonic()
    print(f"disk: {free_gigabytes()}G free, some {8 if suite == 'gate' else 25}G are needed", flush=True)
    done, summary = run_gate() if suite == "gate" else run_everything("--go-on" in arguments)
    failed = [stage["name"] for stage in done if not stage["passed"]]
    if failed:
        print(f"failed stages: {' '.join(failed)}")
    print(f"== {suite}: {time.monotonic() - start:.0f} s")
    print(summary.line(), flush=True)
    return 1 if failed or not summary.good() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
