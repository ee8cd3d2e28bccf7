"""Runs smdebug's own tests, which are not part of this repository, and says item by item what became of them.

    python run.py smdebug [MODULE ...]      # with the real one, of .venv-smdebug
    python run.py tdbg [MODULE ...]         # with smdebug-compat on this tree

The folder with them: $TDBG_SMDEBUG_TESTS, else ../shared/smdebug-tests beside the repository. They run in a copy, in
which everything they write below /tmp is below the copy instead, and their fixed port is a free one.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
REAL = ROOT / ".venv-smdebug" / "bin" / "python"
ITEM_SECONDS = 90


def folder() -> pathlib.Path | None:
    """Where smdebug's own tests are, if they are."""
    for place in (os.environ.get("TDBG_SMDEBUG_TESTS"), ROOT.parent / "shared" / "smdebug-tests"):
        if place and (pathlib.Path(place) / "tests" / "core").is_dir():
            return pathlib.Path(place)
    return None


def prepare(source: pathlib.Path, into: pathlib.Path) -> None:
    """A copy of the tests in which nothing of this machine is shared, with stand-ins for folders that are not there."""
    shutil.copytree(source / "tests", into / "tests")
    for name in ("analysis", "tensorflow"):
        place = into / "tests" / name
        if not place.exists():
            shutil.copytree(HERE / name, place)
            (place / "__init__.py").touch()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    for path in [*into.rglob("*.py"), *into.rglob("*.json")]:
        text = path.read_text(encoding="utf-8")
        changed = re.sub(r"""(?<=["'])/tmp(?!/tensorboard)(?=[/"'])""", f"{into}/tmp", text).replace("29500", port)
        if changed != text:
            path.write_text(changed, encoding="utf-8")
    (into / "tmp").mkdir()


def run(which: str, items: list[str], source: pathlib.Path, into: pathlib.Path) -> dict[str, str]:
    """{item: "passed", or the last line of what it failed with}; items are as in items.txt, a module is all of its own."""
    prepare(source, into)
    path = [str(HERE)] if which == "smdebug" else [str(HERE), str(ROOT / "smdebug-compat" / "src"),
                                                   os.environ.get("TDBG_HOME", str(ROOT / "python"))]
    python = str(REAL) if which == "smdebug" else sys.executable
    environment = {key: value for key, value in os.environ.items() if key not in ("TDBG_RUN", "TRAINING_JOB_NAME")}
    environment |= {"PYTHONPATH": os.pathsep.join(path), "AWS_DEFAULT_REGION": "us-east-1", "OMP_NUM_THREADS": "1",
                    "AWS_EC2_METADATA_DISABLED": "true", "SMDEBUG_TRAINING_END_DELAY_REFRESH": "0"}
    command = [python, "-m", "pytest", "-q", "-p", "standins", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore",
               f"--junitxml={into}/results.xml", *_timeout(python, environment), *(f"tests/{item}" for item in items)]
    with open(into / "log", "w", encoding="utf-8") as log:
        subprocess.run(command, cwd=into, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False)
    return results(into / "results.xml")


def _timeout(python, environment):
    known = subprocess.run([python, "-c", "import pytest_timeout"], env=environment, capture_output=True, check=False)
    return [f"--timeout={ITEM_SECONDS}"] if known.returncode == 0 else []


def results(path: pathlib.Path) -> dict[str, str]:
    found = {}
    for case in xml.parse(path).iter("testcase"):
        module = case.get("classname").removeprefix("tests.").replace(".", "/") + ".py" if case.get("classname") else ""
        name = f"{module}::{case.get('name')}" if module else case.get("name")
        bad = [part for part in case if part.tag in ("failure", "error", "skipped")]
        found[name] = "passed" if not bad else f"{bad[0].tag}: {(bad[0].get('message') or '').strip()[:300]}"
    return found


def main(which, *items):
    source = folder()
    if source is None:
        sys.exit("smdebug's own tests are not here: set TDBG_SMDEBUG_TESTS to their folder")
    into = pathlib.Path(tempfile.mkdtemp(prefix="smdebug-own-"))
    found = run(which, list(items) or ["core", "pytorch"], source, into)
    for item, what in sorted(found.items()):
        print(f"{item}\t{what!r}")
    print(f"{sum(what == 'passed' for what in found.values())} of {len(found)} passed; log and files in {into}",
          file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
