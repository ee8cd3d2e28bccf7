#!/usr/bin/env python3
"""Compiles each public header alone, twice included, with no include path but include/.

A header that only compiles behind another one breaks the user who sorts includes differently.
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Wnon-virtual-dtor", "-Werror"]


def complaint(header):
    text = f'#include "{header}"\n#include "{header}"\n'
    command = [os.environ.get("CXX", "c++"), *FLAGS, "-I", str(ROOT / "include"), "-x", "c++", "-"]
    run = subprocess.run(command, input=text, capture_output=True, text=True)
    return f"{header} does not compile alone:\n{run.stderr}" if run.returncode else None


def main():
    include = ROOT / "include"
    headers = sorted(path.relative_to(include).as_posix() for path in include.rglob("*.h"))
    if not headers:
        print("no public headers found under include/")
        return 1
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [found for found in pool.map(complaint, headers) if found]
    for found in complaints:
        print(found)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
