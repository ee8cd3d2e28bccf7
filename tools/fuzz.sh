#!/usr/bin/env bash
# Builds every fuzz/*_fuzzer.cc with clang and libFuzzer and runs each for some seconds (default 60), one a core.
# A finding stays in build-fuzz/ as crash-*; put it into fuzz/corpus/<target>/ with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
compiler=${FUZZ_CXX:-clang++-19}
if ! command -v "$compiler" >/dev/null; then
  echo "fuzz: $compiler is not installed (tools/setup.sh --ci installs it); skipped" >&2
  exit 0
fi
# With the command line's rooms, since storage and server are among them; only what a fuzzer links is built.
cmake -S . -B build-fuzz -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DTDBG_FUZZ=ON -DTDBG_TESTS=OFF -DTDBG_CLI=ON >/dev/null
ninja -C build-fuzz -j "${JOBS:-$(nproc)}" fuzzers

# One target with the seeds of git, which stay as they are: new inputs go into the first folder.
fuzz_one() {
  local name=$1 seconds=$2
  local seeds=()
  if [[ -d fuzz/corpus/$name ]]; then seeds+=("fuzz/corpus/$name"); fi
  mkdir -p "build-fuzz/corpus/$name"
  echo "fuzz: $name for $seconds s"
  if ! build-fuzz/fuzz/"$name" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=2048 \
      -artifact_prefix="build-fuzz/$name-" "build-fuzz/corpus/$name" "${seeds[@]}" >"build-fuzz/$name.log" 2>&1; then
    tail -n 40 "build-fuzz/$name.log" >&2
    echo "fuzz: $name found something" >&2
    return 1
  fi
}
export -f fuzz_one
# xargs fails if one of them does, after all of them.
find fuzz -maxdepth 1 -name '*_fuzzer.cc' -printf '%f\n' | sed 's/\.cc$//' | sort |
  xargs -P "${JOBS:-$(nproc)}" -I {} bash -c 'fuzz_one "$@"' fuzz {} "$seconds"
