#!/usr/bin/env bash
# run_kernels.sh PROGRAM: the kernels' checks, and again under compute-sanitizer's memcheck and racecheck where it is installed.
set -euo pipefail
"$1"
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do compute-sanitizer --tool "$tool" --error-exitcode 1 "$1"; done
else
  echo "compute-sanitizer is not installed: memcheck and racecheck were not run"
fi
