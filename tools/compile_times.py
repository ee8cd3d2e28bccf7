#!/usr/bin/env python3
"""What compiling everything costs, in processor seconds: by folder, and the dearest files.

    python tools/compile_times.py [--build build] [--jobs 1] [--save TIMES.json] [PATH ...]

Runs each command of the build folder's compile_commands.json by itself, past the compiler cache, and keeps nothing of what it
makes. PATHs choose files or folders: all of them take half an hour on one core. Seconds of a processor and not of a clock, but
they still grow by a third where other programs keep the machine busy: compare figures of one afternoon.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

DEAREST = 15


def folder(name: str) -> str:
    """The room of a file, or the folder of its tests."""
    return "/".join(Path(name).parts[:2]) + (" tests" if name.endswith("_test.cc") else "")


def name_of(entry: dict[str, str], build: Path) -> str:
    """Of a file its path below the repository's root; of a batch (cmake/rooms.cmake) its first file's."""
    file = Path(entry["file"])
    batches = build / "batches"
    return str(file.relative_to(batches if file.is_relative_to(batches) else build.parent))


def compile_once(entry: dict[str, str]) -> float:
    """Seconds that the compiler and what it starts took, its user's and the system's."""
    words = shlex.split(entry["command"])
    words[words.index("-o") + 1] = os.devnull
    child = subprocess.Popen(words, cwd=entry["directory"], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{entry['file']}: {said}")
    return usage.ru_utime + usage.ru_stime


def chosen(entries: list[dict[str, str]], build: Path, paths: list[str]) -> dict[str, dict[str, str]]:
    """The commands by name."""
    wanted = [os.path.normpath(path) for path in paths]
    named = {name_of(entry, build): entry for entry in entries}
    return {
        name: entry
        for name, entry in sorted(named.items())
        if not wanted or any(name == path or name.startswith(path + "/") for path in wanted)
    }


def report(times: dict[str, float]) -> str:
    """A table of folders, then one of files, the dearest first."""
    folders: collections.Counter[str] = collections.Counter()
    files: collections.Counter[str] = collections.Counter()
    for name, seconds in times.items():
        folders[folder(name)] += seconds
        files[folder(name)] += 1
    lines = [f"{seconds:8.1f} s  {name} ({files[name]} files)" for name, seconds in folders.most_common()]
    lines += ["", f"{sum(times.values()):8.1f} s  all {len(times)} files", ""]
    lines += [f"{s:8.1f} s  {name}" for name, s in sorted(times.items(), key=lambda item: -item[1])[:DEAREST]]
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="a folder that CMake has configured and ninja has built in")
    parser.add_argument("--jobs", type=int, default=1, help="how many files at a time")
    parser.add_argument("--save", help="write the seconds of each file here, as JSON")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files or folders; default: all")
    options = parser.parse_args(arguments)
    build = Path(options.build).resolve()
    entries = json.loads((build / "compile_commands.json").read_text())
    commands = chosen(entries, build, options.paths)
    times: dict[str, float] = {}
    try:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for name, seconds in zip(commands, pool.map(compile_once, commands.values())):
                times[name] = seconds
    finally:  # what came out so far, where it is interrupted
        if options.save:
            Path(options.save).write_text(json.dumps(times, indent=1))
        print(report(times))


if __name__ == "__main__":
    main(sys.argv[1:])
