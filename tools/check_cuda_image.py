#!/usr/bin/env python3
"""The committed image of the GPU's kernels is made of the committed sources.

Compares hashes, which needs nothing. With --rebuild, or where tools/build_cuda.py has been run (its compiler lies in
build/cuda-tools), compiles them again and compares the bytes.
"""

import argparse
import sys

import build_cuda


def complaints(rebuild: bool) -> list[str]:
    if not build_cuda.IMAGE.exists() or not build_cuda.NOTE.exists():
        return [f"{build_cuda.IMAGE.relative_to(build_cuda.ROOT)} is missing; run tools/build_cuda.py"]
    image = build_cuda.IMAGE.read_bytes()
    if build_cuda.NOTE.read_text() != build_cuda.note(image):
        return ["src/cuda/image/kernels.txt does not tell of these sources and this image; run tools/build_cuda.py"]
    if rebuild and build_cuda.build(report=False) != image:
        return ["the kernels compile to another image than src/cuda/image/kernels.fatbin; run tools/build_cuda.py"]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rebuild", action="store_true", help="compile, whether or not the compiler is there")
    arguments = parser.parse_args()
    found = complaints(arguments.rebuild or (build_cuda.ENVIRONMENT / "packages.txt").exists())
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
