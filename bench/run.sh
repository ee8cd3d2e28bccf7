#!/usr/bin/env bash
# Every number the project promises, side by side with its rival, as ratios. QUICK=1 for a look, about 4 minutes;
# the whole takes about 40 on 2 cores. Rivals' environments are made once (bench/setup_rivals.sh; RIVALS=0: without).
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
out=bench/out/$(date +%Y%m%d-%H%M%S)
mkdir -p "$out"
rounds=25
[ -n "${QUICK:-}" ] && rounds=6
[ "${RIVALS:-1}" = 0 ] || bench/setup_rivals.sh

say() { printf '\n== %s\n' "$*"; }
cmake -S . -B build-bench -G Ninja -DCMAKE_CXX_COMPILER=g++ -DTDBG_BENCH=ON -DTDBG_TESTS=OFF -DTDBG_CLI=OFF >/dev/null
ninja -C build-bench >/dev/null

say "One pass over memory, one core (bench/summary_bench.cc)"
build-bench/bench/summary_bench --json "$out/summary.json"
say "A step with nothing due (bench/idle_steps.cc)"
bench/idle_instructions.sh
say "From the end of a faulty step to the event (bench/latency.py)"
"$python" bench/latency.py --json "$out/latency.json"
say "What judging costs: replay, check, watcher (bench/rules.py)"
"$python" bench/rules.py --json "$out/rules.json" ${QUICK:+--quick}
say "Time per training step (bench/training/overhead.py)"
"$python" bench/training/overhead.py --rounds "$rounds" --json "$out/overhead.json"
printf '\nall figures: %s\n' "$out"
