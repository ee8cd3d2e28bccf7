#!/usr/bin/env bash
# The kernels of src/cuda: milliseconds and share of a read-only kernel's bandwidth, by type, with and without histogram, 1 G
# elements. The baseline is the same memory read 16 bytes at a time with nothing made of it, best of 20, in the same run.
#
#   bench/gpu/kernels.sh [BUILD_FOLDER]
set -euo pipefail
program=${1:-build}/tests/gpu/tdbg_gpu_kernels
test -x "$program" || { echo "build it first: ninja -C ${1:-build} tdbg_gpu_kernels" >&2; exit 1; }
status=0
"$program" --bench || status=$?
[[ $status == 77 ]] && exit 0  # no GPU; it has said so
exit $status
