#!/usr/bin/env bash
# What a machine with a GPU needs to run this suite and bench/gpu, in one file: wheels, the suite, the kernels' program.
# There it needs Python 3.11 or later with torch and numpy, and neither a network nor a compiler nor Debian's packages.
#
#   tests/gpu/carry.sh [FILE]       default: build/tdbg-gpu.tar.gz; begins with what tools/wheels.sh made, if it did
#   there: tar xzf tdbg-gpu.tar.gz && tdbg-gpu/run.sh [PYTHON] [--bench]
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:-build/tdbg-gpu.tar.gz}")
program=build/tests/gpu/tdbg_gpu_kernels
[[ -x $program ]] || { echo "carry: $program is missing: ninja -C build tdbg_gpu_kernels" >&2; exit 1; }
shopt -s nullglob
wheels=(dist/release/tdbg-*.whl)
((${#wheels[@]})) || wheels=(dist/tdbg-*.whl)
((${#wheels[@]})) || { echo "carry: no wheel in dist/release or dist: tools/wheels.sh makes those for all Pythons, make wheel this one's" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=$work/tdbg-gpu
mkdir -p "$to/wheels" "$to/tests" "$to/bench"
cp "${wheels[@]}" "$to/wheels"
"${TDBG_VENV:-.venv}/bin/python" -m pip download --quiet --disable-pip-version-check --only-binary :all: -d "$to/wheels" pytest
cp tests/gpu/*.py "$to/tests"
cp bench/gpu/*.py "$to/bench"
cp tests/gpu/run.sh tests/gpu/run_kernels.sh tools/summarize_tests.py "$program" "$to"
git rev-parse HEAD >"$to/commit" 2>/dev/null || true
mkdir -p "$(dirname "$out")"
tar -C "$work" -czf "$out" tdbg-gpu
echo "$out"
for wheel in "${wheels[@]}"; do echo "  with $(basename "$wheel")"; done
