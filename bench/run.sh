#!/usr/bin/env bash
# Every number the project promises, side by side with its rival, as ratios.
#
#   bench/run.sh [SECTION...]     sections: summary idle registry cpp latency handlers rules workers waiting storage service keras-fit reading export cnn-1 cnn-2 units-1 transformer-1 transformer-2 mlp-1 mlp-2
#                                 hf-1 lightning-1 compiled-1 mxnet xgboost
#
# Without a section: all of them, 25 minutes at most on 2 cores and some more for storage, no other section longer than 4. OUT=DIR continues in the
# folder of an earlier run: the table at the end has the newest figure of every section that ever ran there.
# QUICK=1 for a look. Rivals' environments are made once (bench/setup_rivals.sh; RIVALS=0: without them).
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
all="summary idle registry cpp latency handlers rules workers waiting storage service keras-fit reading export cnn-1 cnn-2 units-1 transformer-1 transformer-2 mlp-1 mlp-2 hf-1 lightning-1 compiled-1 mxnet xgboost"
out=${OUT:-bench/out/$(date +%Y%m%d-%H%M%S)}
rounds=25 seconds=150
[ -n "${QUICK:-}" ] && rounds=6 seconds=30

sections=${*:-$all}
for section in $sections; do
  case " $all " in
    *" $section "*) ;;
    *) echo "bench: no section \"$section\"; there are: $all" >&2; exit 2 ;;
  esac
done
mkdir -p "$out"
out=$(cd "$out" && pwd)
[ "${RIVALS:-1}" = 0 ] || bench/setup_rivals.sh

say() { printf '\n== %s\n' "$*"; }
built=
build() {  # what the C++ sections run, once
  [ -n "$built" ] && return
  cmake -S . -B build-bench -G Ninja -DCMAKE_CXX_COMPILER=g++ -DTDBG_BENCH=ON -DTDBG_TESTS=OFF -DTDBG_CLI=OFF >/dev/null
  ninja -C build-bench >/dev/null
  built=1
}

package() {  # $out/package: tdbg as .venv has it, and nothing else of that environment
  mkdir -p "$out/package"
  for part in tdbg tdbg.libs; do
    ln -sfn "$("$python" -c 'import pathlib, tdbg; print(pathlib.Path(tdbg.__file__).parents[1])')/$part" "$out/package/$part"
  done
}

for section in $sections; do
  case $section in
    keras-fit)
      say "Keras fit, statistics at every step (bench/training/keras_fit.py)"
      tools/setup_framework.sh keras
      package
      PYTHONPATH=$out/package .venv-keras/bin/python bench/training/keras_fit.py --json "$out/keras_fit.json" ${QUICK:+--rounds 5} ;;
    summary)
      say "One pass over memory, one core (bench/summary_bench.cc)"
      build
      build-bench/bench/summary_bench --json "$out/summary.json" ;;
    idle)
      say "A step with nothing due (bench/idle_steps.cc)"
      build
      bench/idle_instructions.sh | tee "$out/idle.txt" ;;
    registry)
      say "A registry of 10,000 jobs (bench/registry_bench.cc)"
      # The jobs are the command line's, which nothing else here is built with.
      cmake -S . -B build-bench/cli -G Ninja -DCMAKE_CXX_COMPILER=g++ -DTDBG_BENCH=ON -DTDBG_TESTS=OFF >/dev/null
      ninja -C build-bench/cli registry_bench >/dev/null
      build-bench/cli/bench/registry_bench "$out" | tee "$out/registry.json" ;;
    cpp)
      say "A C++ loop with 200 tensors of 64 KiB (bench/cpp_loop.cc)"
      build
      build-bench/bench/cpp_loop --json "$out/cpp.json" ;;
    handlers)
      say "From a finding to the call of a handler (bench/handlers.py)"
      "$python" bench/handlers.py --json "$out/handlers.json" ;;
    latency)
      say "From the end of a faulty step to the event (bench/latency.py)"
      "$python" bench/latency.py --json "$out/latency.json" ;;
    rules)
      say "What judging costs: replay, check, watcher (bench/rules.py)"
      build
      "$python" bench/rules.py --json "$out/rules.json" ${QUICK:+--quick} ;;
    workers)
      say "64 workers, judged by one process (bench/workers.py)"
      "$python" bench/workers.py workers --json "$out/workers.json" ;;
    waiting)
      say "Processes that have nothing to do (bench/workers.py)"
      "$python" bench/workers.py idle --json "$out/waiting.json" ${QUICK:+--seconds 20} ;;
    storage)
      say "What a bucket costs: sending, opening, beside a training (bench/storage.py)"
      "$python" bench/storage.py --json "$out/storage.json" ${QUICK:+--quick} ;;
    service)
      say "The service at size, and how long its users wait (bench/service.py)"
      "$python" bench/service.py --json "$out/service.json" ${QUICK:+--quick} ;;
    reading)
      say "What reading costs: a run of a million entries (bench/reading/reading.py)"
      # A missed bar is in what it prints; the other sections run all the same.
      "$python" bench/reading/reading.py --json "$out/reading.json" ${QUICK:+--steps 2000 --rounds 1} || true ;;
    export)
      say "10,000 histograms as TensorBoard files (bench/export_histograms.py)"
      "$python" bench/export_histograms.py ${QUICK:+--rounds 1} --json "$out/export_histograms.json" ;;
    hf-*|lightning-*)
      say "Time per training step: ${section%-*}'s own loop (bench/training/overhead.py, driven.py)"
      tools/setup_framework.sh hf
      "$python" bench/training/overhead.py --models "${section%-*}" --threads "${section##*-}" --rounds "$rounds" \
        --seconds "$seconds" --json "$out/overhead-$section.json" ;;
    mxnet)
      say "Time per training step: MXNet Gluon (bench/training/mxnet_gluon.py)"
      tools/setup_framework.sh mxnet
      package
      PYTHONPATH=$out/package .venv-mxnet/bin/python bench/training/mxnet_gluon.py ${QUICK:+--repeat 10} --json "$out/mxnet.json" ;;
    xgboost)
      say "Time per round of XGBoost (bench/training/xgboost_rounds.py)"
      "$python" bench/training/xgboost_rounds.py ${QUICK:+--repeat 3} --json "$out/xgboost.json" ;;
    *)
      say "Time per training step: ${section%-*}, ${section##*-} torch thread(s) (bench/training/overhead.py)"
      "$python" bench/training/overhead.py --models "${section%-*}" --threads "${section##*-}" --rounds "$rounds" \
        --seconds "$seconds" --json "$out/overhead-$section.json" ;;
  esac
done
say "The bars, from what has been measured in $out"
"$python" bench/table.py "$out"
