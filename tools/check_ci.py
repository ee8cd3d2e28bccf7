#!/usr/bin/env python3
"""What CI definitions and commit hooks name is there: scripts, make targets, programs that the images have. And both forges run
the same, on every Python for which there is a wheel.

Wants PyYAML (make setup; `.venv/bin/python tools/check_ci.py`).
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
GITHUB, GITLAB, HOOKS = ".github/workflows/ci.yml", ".gitlab-ci.yml", ".pre-commit-config.yaml"
# Programs that the images have, or tools/setup.sh installs.
PROGRAMS = {"apt-get", "git", "cmake", "ninja", "ctest", "mkdir", "cp", "make"}


class Tree:
    """What is there to be named."""

    def __init__(self, root):
        self.root = root
        self.targets = set(re.findall(r"^([a-z][\w-]*)(?:-%)?:(?!=)", (root / "Makefile").read_text(), re.MULTILINE))
        checks = re.search(r"^check:.*\n\t@status=0; for tool in ([^;]+);", (root / "Makefile").read_text(), re.MULTILINE)
        self.checks = {f"tools/check_{tool}" for tool in checks[1].split()} if checks else set()
        wheels = (root / "tools" / "wheels.sh").read_text()
        self.pythons = re.search(r"^for version in ([\d. ]+); do try", wheels, re.MULTILINE)[1].split()

    def complaint(self, command):
        """What is wrong with one simple command; None: nothing."""
        words = [word for word in shlex.split(command) if not re.fullmatch(r"\w+=.*", word)]
        program, arguments = words[0], words[1:]
        if program == "make":
            missing = [word for word in arguments if not word.startswith("-") and word not in self.targets]
            return f"make has no target {', '.join(missing)}" if missing else None
        if program.startswith(".venv/bin/"):  # made by tools/setup.sh; what it runs is looked at
            program, arguments = (arguments or [""])[0], arguments[1:]
        if "/" not in program:
            return None if program in PROGRAMS else f"{program} is no program that the images are known to have"
        path = self.root / program
        if not path.is_file():
            return f"{program} is not there"
        if not os.access(path, os.X_OK):
            return f"{program} cannot be executed"
        # A script that takes flags lists them in its head.
        head = path.read_text().split("\n\n")[0] if path.suffix in (".sh", "") else None
        unknown = [word for word in arguments if word.startswith("--") and head is not None and word not in head]
        return f"{program} says nothing of {', '.join(unknown)}" if unknown else None

    def complaints(self, where, script):
        found = []
        for command in re.split(r"&&|\|\||;|\n", script):
            if command.strip():
                said = self.complaint(command)
                if said:
                    found.append(f"{where}: {said} ({command.strip()})")
        return found


def github_jobs(document):
    """{job: (commands, values of its matrix)}"""
    return {name: ([step["run"] for step in job["steps"] if "run" in step], job.get("strategy", {}).get("matrix", {}))
            for name, job in document["jobs"].items()}


def gitlab_jobs(document):
    jobs = {name: job for name, job in document.items() if isinstance(job, dict) and "script" in job}
    return {name: (job.get("before_script", []) + job["script"],
                   {key.lower(): values for entry in job.get("parallel", {}).get("matrix", []) for key, values in entry.items()})
            for name, job in jobs.items()}


def compare(tree, github, gitlab):
    """'file: what' for what is named and not there, and for what one forge does and the other does not."""
    found = []
    for file, jobs in ((GITHUB, github), (GITLAB, gitlab)):
        for job, (commands, _) in jobs.items():
            for command in commands:
                # A matrix's value stands for a word.
                found += tree.complaints(f"{file}: {job}", re.sub(r"\$\{\{.*?\}\}|\$\w+", "x", command.replace('"$PWD"', "x")))
        pythons = jobs.get("pythons", ([], {}))[1].get("python")
        if pythons != tree.pythons:
            found.append(f"{file}: pythons are {pythons}; tools/wheels.sh tries {tree.pythons}")
    for job in sorted(set(github) ^ set(gitlab)):
        found.append(f"{GITHUB if job in github else GITLAB}: only here is a job {job}")
    for job in sorted(set(github) & set(gitlab)):
        if github[job][1] != gitlab[job][1]:
            found.append(f"{GITLAB}: {job} is run for {gitlab[job][1]}, in {GITHUB} for {github[job][1]}")
    return found


def hooks(tree, document):
    """'file: what' for hooks that name what is not there, would fetch something, or are not those of `make check`."""
    found, entries = [], set()
    for repository in document["repos"]:
        if repository["repo"] != "local":
            found.append(f"{HOOKS}: {repository['repo']} would be fetched")
            continue
        for hook in repository["hooks"]:
            if hook["language"] != "system":
                found.append(f"{HOOKS}: {hook['id']}: language {hook['language']} would be fetched")
            found += tree.complaints(f"{HOOKS}: {hook['id']}", hook["entry"])
            entries.add(hook["entry"].split()[-1])
    found += [f"{HOOKS}: no hook runs {check}, as make check does" for check in sorted(tree.checks - entries)]
    found += [f"{HOOKS}: make check does not run {entry}" for entry in sorted(entries - tree.checks)]
    return found


def main():
    tree = Tree(ROOT)
    found = []
    parsed = {}
    others = subprocess.run(["git", "ls-files", "*.yml", "*.yaml"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in {GITHUB, GITLAB, HOOKS, *others.split()}:
        try:
            text = (ROOT / name).read_text()
            # Of other programs' files, which may have tags of their own, only the syntax.
            parsed[name] = yaml.safe_load(text) if name in (GITHUB, GITLAB, HOOKS) else list(yaml.compose_all(text))
        except (OSError, yaml.YAMLError) as error:
            found.append(f"{name}: {error}")
    if not found:
        found = compare(tree, github_jobs(parsed[GITHUB]), gitlab_jobs(parsed[GITLAB])) + hooks(tree, parsed[HOOKS])
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
