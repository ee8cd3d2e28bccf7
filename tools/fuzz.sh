#!/usr/bin/env bash
# Builds every fuzz/*_fuzzer.cc with clang and libFuzzer and runs each for some seconds (default 60).
# A finding stays in build-fuzz/ as crash-*; put it into fuzz/corpus/<target>/ with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
compiler=${FUZZ_CXX:-clang++-19}
if ! command -v "$compiler" >/dev/null; then
  echo "fuzz: $compiler is not installed (tools/setup.sh --ci installs it); skipped" >&2
  exit 0
fi
cmake -S . -B build-fuzz -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DTDBG_FUZZ=ON -DTDBG_TESTS=OFF -DTDBG_CLI=OFF >/dev/null
ninja -C build-fuzz -j "${JOBS:-$(nproc)}" fuzzers
shopt -s nullglob
failed=0
for source in fuzz/*_fuzzer.cc; do
  name=$(basename "$source" .cc)
  mkdir -p "build-fuzz/corpus/$name"
  seeds=()
  if [[ -d fuzz/corpus/$name ]]; then seeds+=("fuzz/corpus/$name"); fi
  echo "fuzz: $name for $seconds s"
  # New inputs go into the first folder; the seeds stay as they are in git.
  if ! build-fuzz/fuzz/"$name" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=2048 \
      -artifact_prefix="build-fuzz/$name-" "build-fuzz/corpus/$name" "${seeds[@]}" >"build-fuzz/$name.log" 2>&1; then
    tail -n 40 "build-fuzz/$name.log" >&2
    echo "fuzz: $name found something" >&2
    failed=1
  fi
done
exit $failed
