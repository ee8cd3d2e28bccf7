#!/usr/bin/env python3
"""What no commit should carry: paths of somebody's machine, addresses of package registries, big files, leftovers, and
test modules that pytest could not tell apart.

Looks at what git tracks, and at new files that it does not ignore.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_BYTES = 1 << 20
#: Machine code for six architectures.
LARGER = {"src/cuda/image/kernels.fatbin": 2 << 20}
MAX_CODE_LINES = 600
CODE = {".cc", ".h", ".py", ".sh", ".cmake"}

# Every pattern is written so that it does not match this file.
FORBIDDEN = [
    ("an absolute path of one machine", re.compile(r"(?<![\w.~$}*-])/(?:wor[k]|roo[t]|hom[e]/\w+|User[s]/\w+)(?![\w-])")),
    ("the address of a package registry",
     re.compile(r"(?:py[p]i\.org|pythonhoste[d]\.org|registry\.npm[j]s\.org|deb\.debia[n]\.org|"
                r"proxy\.gola[n]g\.org|crates[.]io|anacond[a]\.org|download\.pytorc[h]\.org|"
                r"--(?:extra-)?index-ur[l])")),
    # clang calls their buffer in libstdc++ 12 deprecated, which is an error of the build; base::StableSort does the same.
    ("an algorithm that clang refuses", re.compile(r"\b(?:std|ranges)::(?:stable_sor[t]|stable_partitio[n]|inplace_merg[e])\(")),
    ("a leftover", re.compile(r"\b(?:TOD[O]|FIXM[E])\b")),
]


def complaints_about(name, contents):
    """'name[:line]: what' for each fault in one file's bytes."""
    found = []
    most = LARGER.get(name, MAX_BYTES)
    if len(contents) > most:
        found.append(f"{name}: {len(contents)} bytes, more than {most}")
    try:
        text = contents.decode("utf-8")
    except UnicodeDecodeError:
        return found  # binary test data
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        for what, pattern in FORBIDDEN:
            match = pattern.search(line)
            if match:
                found.append(f"{name}:{number}: {what}: {match.group(0)}")
    if pathlib.PurePath(name).suffix in CODE and len(lines) >= MAX_CODE_LINES:
        found.append(f"{name}: {len(lines)} lines; a file of {MAX_CODE_LINES} has more than one subject")
    return found


def _is_test(name):
    path = pathlib.PurePath(name)
    return path.suffix == ".py" and (path.stem.startswith("test_") or path.stem.endswith("_test"))


def modules_of_one_name(names):
    """'name: what' for each Python file beside tests that is imported under the name of another.

    pytest puts a test's folder (of packages: the first one that is none) in front of sys.path and imports by what is
    left of the path. The second module of one name in a process is then the first one, or an error.
    """
    files = {pathlib.PurePath(name) for name in names}
    folders = {pathlib.PurePath(name).parent for name in names if _is_test(name)}
    first, found = {}, []
    for path in sorted(files):
        # pytest itself keeps conftest.py files apart.
        if path.suffix != ".py" or path.name in ("conftest.py", "__init__.py") or path.parent not in folders:
            continue
        module, folder = [path.stem], path.parent
        while folder / "__init__.py" in files:
            module.insert(0, folder.name)
            folder = folder.parent
        other = first.setdefault(".".join(module), path)
        if other != path:
            found.append(f"{path}: pytest imports it as {'.'.join(module)}, and {other} too; give it a name of its own")
    return found


def files_of_repository():
    listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                             check=True, capture_output=True).stdout
    return sorted(name for name in listing.decode().split("\0") if name)


def main():
    names = files_of_repository()
    complaints = modules_of_one_name(names)
    for name in names:
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            complaints += complaints_about(name, path.read_bytes())
    for line in complaints:
        print(line)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
