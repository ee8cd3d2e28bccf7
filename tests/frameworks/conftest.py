"""Frameworks with an environment of their own (tools/frameworks) are tested there, by make test-frameworks."""

import json
import os
import pathlib
import platform
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))
if not any((pathlib.Path(p) / "tdbg").is_dir() for p in sys.path if p):
    sys.path.insert(0, HOME)

collect_ignore = [
    wanted.stem for wanted in (ROOT / "tools" / "frameworks").glob("*.txt")
    if pathlib.Path(sys.prefix).name != f".venv-{wanted.stem}"
]


# What a conformance run verified, for the table in docs/frameworks.md: build/conformance/FOLDER.json (FOLDER-CLASS.json or
# FOLDER-RECORD.json where a folder has several), written where every check of the framework ran (tools/frameworks_table.py reads it).
_checked = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    framework = getattr(item.cls, "framework", None)
    if framework is None:
        return
    report = outcome.get_result()
    if report.when == "call" or report.failed:
        result = "known: " + report.wasxfail if hasattr(report, "wasxfail") and report.skipped else report.outcome
        _checked.setdefault(item.cls, {})[item.name] = result


def pytest_sessionfinish(session):
    for kind, checks in _checked.items():
        wanted = {name for name in dir(kind) if name.startswith("test_")}
        if {name.partition("[")[0] for name in checks} != wanted:
            continue        # a selection says nothing of the rest
        framework, folder = kind.framework, kind.__module__.split(".")[-2]
        record = {"framework": framework.title, "version": framework.version(),
                  "python": platform.python_version() if framework.python else None, "collections": list(framework.names),
                  "default": list(framework.default), "absent": framework.absent, "checks": checks}
        place = ROOT / "build" / "conformance"
        place.mkdir(parents=True, exist_ok=True)
        alone = sum(other.__module__ == kind.__module__ for other in _checked) == 1
        parts = [folder, *([] if alone else [kind.__name__]), *([framework.record] if framework.record else [])]
        (place / ("-".join(parts) + ".json")).write_text(json.dumps(record, indent=1) + "\n")
