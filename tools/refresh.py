#!/usr/bin/env python3
"""Writes what each Python environment of this repository is made of: from NAME.in, which says what is wanted, NAME.txt, which
lists every package that this leads to, each with its version, so that nothing changes by itself.

  tools/refresh.py [NAME...]    which ones (default: all); `make refresh`
  tools/refresh.py --list       the names, and their files

pip looks up the latest versions that go together, for the Python that runs this; nothing is installed. Run the tests behind an
environment before its list is committed.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What the tests of a framework need in its environment.
TESTS = ["pytest", "pytest-timeout", "pytest-xdist", "safetensors"]
ALONE = "--no-deps"  # a line of a NAME.in: what stands below it is taken without what it says that it needs


def environments():
    """{name: its NAME.in}"""
    tools = ROOT / "tools"
    own = {"venv": tools / "requirements.in", "smdebug": tools / "smdebug.in", "docs": tools / "docs/requirements.in"}
    return {**own, **{path.stem: path for path in sorted((tools / "frameworks").glob("*.in"))}}


def parts(text):
    """(requirements, requirements without dependencies) of a NAME.in"""
    lines = [line.partition(" #")[0].strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    at = lines.index(ALONE) if ALONE in lines else len(lines)
    return lines[:at], lines[at + 1:]


def resolved(requirements, *options):
    """{name: version} of all that pip would install."""
    if not requirements:
        return {}
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run", "--ignore-installed",
                        "--report", report.name, *options, *requirements], check=True, stdout=subprocess.DEVNULL)
        found = [item["metadata"] for item in json.load(report)["install"]]
    # A build's own part of a version (torch 2.13.0+cpu) is not to be had everywhere.
    return {item["name"]: item["version"].partition("+")[0] for item in found}


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(wanted, more):
    """The text of the NAME.txt beside `wanted`."""
    requirements, alone = parts(wanted.read_text())
    found = {**resolved([*requirements, *more]), **resolved(alone, "--no-deps")}
    head = [f"# Written by tools/refresh.py from {wanted.name}, for Python {sys.version_info.major}.{sys.version_info.minor}; not to be edited."]
    return "\n".join(head + [f"{name}=={found[name]}" for name in sorted(found, key=normal)]) + "\n"


def main(names):
    known = environments()
    if names == ["--list"]:
        for name, path in known.items():
            print(f"{name:12s} {path.relative_to(ROOT)}")
        return 0
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"refresh: no environment {', '.join(unknown)}; there are: {' '.join(known)}", file=sys.stderr)
        return 2
    for name in names or known:
        wanted = known[name]
        print(f"refresh: {name}", flush=True)
        text = locked(wanted, TESTS if wanted.parent.name == "frameworks" else [])
        wanted.with_suffix(".txt").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
