"""What a CI definition or a hook names and is not there is found, and so is what only one of two forges does."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
yaml = pytest.importorskip("yaml")
import check_ci  # noqa: E402

GITHUB = """
jobs:
  all:
    steps:
      - uses: actions/checkout
      - run: apt-get update -q && .ci/run
  pythons:
    strategy: {matrix: {python: ["3.10", "3.11"]}}
    steps:
      - run: tools/wheels.sh --try ${{ matrix.python }}
"""
GITLAB = """
default: {image: "debian:12"}
all:
  before_script: [apt-get update -q]
  script: [.ci/run]
pythons:
  parallel: {matrix: [{PYTHON: ["3.10", "3.11"]}]}
  script: [tools/wheels.sh --try $PYTHON]
"""
HOOKS = "repos: [{repo: local, hooks: [{id: a, entry: tools/check_a.py, language: system}]}]"


@pytest.fixture
def tree(tmp_path):
    for name in (".ci", "tools"):
        (tmp_path / name).mkdir()
    (tmp_path / ".ci/run").write_text("#!/bin/sh\n# Everything.\n\ntrue\n")
    (tmp_path / "tools/wheels.sh").write_text(
        "#!/bin/sh\n#   tools/wheels.sh [--try 3.X]\n\nfor version in 3.10 3.11; do try $version; done\n")
    (tmp_path / "tools/odd.py").write_text("")
    (tmp_path / "tools/check_a.py").write_text("")
    (tmp_path / "Makefile").write_text("check: setup\n\t@status=0; for tool in a.py; do x; done\ntest-framework-%: x\nVAR := 1\n")
    for name in (".ci/run", "tools/wheels.sh", "tools/check_a.py"):
        (tmp_path / name).chmod(0o755)
    return check_ci.Tree(tmp_path)


def found(tree, github=GITHUB, gitlab=GITLAB):
    return check_ci.compare(tree, check_ci.github_jobs(yaml.safe_load(github)), check_ci.gitlab_jobs(yaml.safe_load(gitlab)))


def test_definitions_that_agree_and_name_what_is_there_are_fine(tree):
    assert found(tree) == []
    assert check_ci.hooks(tree, yaml.safe_load(HOOKS)) == []


@pytest.mark.parametrize("command, said", [
    ("tools/none.sh", "tools/none.sh is not there"),
    ("tools/odd.py", "tools/odd.py cannot be executed"),
    ("tools/wheels.sh --tyr 3.10", "says nothing of --tyr"),
    ("make none", "make has no target none"),
    ("make VAR", "make has no target VAR"),
    ("brew install x", "brew is no program"),
    ("apt-get update || tools/none.sh", "tools/none.sh is not there"),
    (".venv/bin/python tools/none.py", "tools/none.py is not there"),
])
def test_what_is_not_there_is_found(tree, command, said):
    complaint, = found(tree, github=GITHUB.replace(".ci/run", command))
    assert complaint.startswith(".github/workflows/ci.yml: all: ") and said in complaint
    complaint, = found(tree, gitlab=GITLAB.replace(".ci/run", command))
    assert complaint.startswith(".gitlab-ci.yml: all: ") and said in complaint


@pytest.mark.parametrize("command", ["make check", "make test-framework", "A=1 tools/wheels.sh --try x"])
def test_what_is_there_is_fine(tree, command):
    assert tree.complaint(command) is None


def test_forges_that_differ_are_found(tree):
    assert "3.12" in "".join(found(tree, github=GITHUB.replace('"3.11"', '"3.12"')))
    assert found(tree, gitlab=GITLAB + "more: {script: [.ci/run]}\n") == [".gitlab-ci.yml: only here is a job more"]


def test_hooks_that_would_fetch_something_are_found(tree):
    for changed in (HOOKS.replace("local", "https://forge.example/x"), HOOKS.replace("system", "python"),
                    HOOKS.replace("tools/check_a.py", "tools/none.sh")):
        assert check_ci.hooks(tree, yaml.safe_load(changed))


def test_hooks_are_the_checks_of_make_check(tree):
    tree.checks = {"tools/check_a.py", "tools/check_b.py"}
    assert check_ci.hooks(tree, yaml.safe_load(HOOKS)) == [
        ".pre-commit-config.yaml: no hook runs tools/check_b.py, as make check does"]
    tree.checks = set()
    assert check_ci.hooks(tree, yaml.safe_load(HOOKS)) == [".pre-commit-config.yaml: make check does not run tools/check_a.py"]
