"""A release is made of a clean tree with one version and a changelog, or not at all."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

TOOLS = pathlib.Path(__file__).resolve().parent
CHANGELOG = "# Changes\n\n## Next\n\n### Added\n\n- One thing.\n\n### Fixed\n\n- Another.\n\n## 0.1.0, 2026-11-21\n\n### Added\n\n- All.\n"


class Project:
    def __init__(self, path):
        self.path = path
        for name in ("tools", "smdebug-compat", "src/cli", "python/tdbg"):
            (path / name).mkdir(parents=True)
        for name in ("release.sh", "check_version.py"):
            shutil.copy(TOOLS / name, path / "tools" / name)
        # What a release builds and checks is tested elsewhere; here it matters that it is asked for, and what its failure does.
        self.write("tools/wheels.sh", "#!/bin/sh\ntest ! -e broken || exit 1\nmkdir -p $1 && tools/check_version.py --print >$1/built\n")
        (path / "tools/wheels.sh").chmod(0o755)
        self.write("Makefile", "check:\n\t@test ! -e unchecked\n")
        self.write(".gitignore", "dist\nbroken\nunchecked\n__pycache__\n")
        self.write("pyproject.toml", '[project]\nversion = "0.1.0"\n')
        self.write("smdebug-compat/pyproject.toml", '[project]\nversion = "0.1.0"\n')
        for name in ("CMakeLists.txt", "src/cli/version.h", "python/tdbg/__init__.py"):
            self.write(name, "")
        self.write("CHANGELOG.md", CHANGELOG)
        self.git("init", "-q")
        self.commit()

    def write(self, name, text):
        (self.path / name).write_text(text)

    def git(self, *arguments):
        env = {**os.environ, **{f"GIT_{who}_{what}": "x@y.z" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}}
        return subprocess.run(["git", *arguments], cwd=self.path, env=env, check=True, capture_output=True, text=True).stdout

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")

    def release(self, *arguments):
        env = {**os.environ, **{f"GIT_{who}_{what}": "x@y.z" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
               "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
        env.pop("MAKEFLAGS", None)
        return subprocess.run(["tools/release.sh", *arguments], cwd=self.path, env=env, capture_output=True, text=True, timeout=60)

    def state(self):
        return self.git("status", "--porcelain"), self.git("log", "--format=%s"), self.git("tag")


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(project):
    before = project.state()
    done = project.release("--dry-run", "0.2.0")
    assert done.returncode == 0, done.stderr
    assert "0.2.0 after 0.1.0, 2 changelog entries" in done.stdout and "tag v0.2.0" in done.stdout
    assert project.state() == before and not (project.path / "dist").exists()


def test_a_release_is_one_commit_with_a_tag_and_the_wheels_of_its_version(project):
    done = project.release("0.2.0")
    assert done.returncode == 0, done.stderr
    assert project.state() == ("", "Release 0.2.0\nx\n", "v0.2.0\n")
    for name in ("pyproject.toml", "smdebug-compat/pyproject.toml"):
        assert 'version = "0.2.0"' in (project.path / name).read_text()
    changelog = (project.path / "CHANGELOG.md").read_text()
    assert changelog.startswith("# Changes\n\n## Next\n\n## 0.2.0, 20") and changelog.endswith(CHANGELOG.split("## Next\n")[1])
    assert (project.path / "dist/release/built").read_text() == "0.2.0\n"
    again = project.release("0.2.1")
    assert again.returncode == 1 and 'nothing under "Next"' in again.stderr


@pytest.mark.parametrize("arguments", [(), ("1",), ("v0.2.0",), ("0.2.0", "0.3.0"), ("--dry", "0.2.0")])
def test_what_is_no_version_is_refused(project, arguments):
    done = project.release(*arguments)
    assert done.returncode == 1 and "usage" in done.stderr


def refused(project, words, version="0.2.0"):
    for flags in (["--dry-run"], []):
        before = project.state()
        done = project.release(*flags, version)
        assert done.returncode == 1 and words in done.stderr, done
        assert project.state() == before


def test_a_version_that_is_not_later_or_has_a_tag_is_refused(project):
    refused(project, "not later than 0.1.0", "0.1.0")
    refused(project, "not later than 0.1.0", "0.0.9")
    project.git("tag", "v0.10.0")
    refused(project, "there is a tag v0.10.0", "0.10.0")


def test_a_tree_that_nobody_else_has_is_refused(project):
    project.write("new.txt", "")
    refused(project, "the working tree is not clean: ?? new.txt")


def test_versions_that_disagree_and_a_red_check_are_refused(project):
    project.write("unchecked", "")
    refused(project, "make check is red")
    project.write("smdebug-compat/pyproject.toml", '[project]\nversion = "0.0.9"\n')
    project.commit()
    refused(project, "the versions disagree")


def test_a_changelog_entry_without_a_category_is_refused(project):
    project.write("CHANGELOG.md", CHANGELOG.replace("## Next\n\n", "## Next\n\n- A loose one.\n\n"))
    project.commit()
    refused(project, "in none of Added, Changed, Fixed: - A loose one.")


def test_wheels_that_cannot_be_built_leave_the_tree_as_it_was(project):
    before = project.state()
    project.write("broken", "")
    done = project.release("0.2.0")
    assert done.returncode != 0 and project.state() == before
