#!/usr/bin/env bash
# A step with nothing due must cost the same handful of instructions whatever the model: callgrind counts those of
# 1,000 and of 2,000 idle steps with 10 and with 10,000 tensors defined; the difference is the steps' own.
set -euo pipefail
cd "$(dirname "$0")/.."
program=build-bench/bench/idle_steps
count() {  # count STEPS TENSORS
  valgrind --tool=callgrind --toggle-collect='IdleSteps*' --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 | sed -n 's/.*Collected : //p'
}
for tensors in 10 10000; do
  a=$(count 1000 "$tensors")
  b=$(count 2000 "$tensors")
  echo "$tensors tensors: $(((b - a) / 1000)) instructions a step"
done
