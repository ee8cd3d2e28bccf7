#!/usr/bin/env bash
# Runs the carried suite (carry.sh) beside which it lies. Without a GPU all that needs one is counted as skipped.
#
#   run.sh [PYTHON] [--bench]       PYTHON (python3): one that imports torch; results: results.txt, results.xml
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=python3 bench=
for word in "$@"; do
  if [[ $word == --bench ]]; then bench=1; else python=$word; fi
done
"$python" -c 'import numpy, torch' || { echo "run.sh: $python cannot import torch and numpy: name one that can" >&2; exit 2; }
site=$here/site-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
install() { "$python" -m pip install --quiet --disable-pip-version-check --no-index --find-links "$here/wheels" --target "$site" "$@"; }
if [[ ! -d $site ]]; then
  install --no-deps tdbg && install pytest || { rm -rf "$site"; echo "run.sh: no wheel in $here/wheels is for $python" >&2; exit 2; }
fi
export PYTHONPATH=$site TDBG_HOME=$site TDBG_BIN=$site/tdbg/bin/tdbg TDBG_CLI=$site/tdbg/bin/tdbg
cd "$here" || exit 2
{
  date -u
  cat commit 2>/dev/null
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo "no nvidia-smi"
  "$python" -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda, "GPUs", torch.cuda.device_count())'
  timeout --kill-after=20 1800 "$python" -m pytest -q -ra -p no:cacheprovider --junitxml=results.xml tests
  pytest_said=$?
  ./run_kernels.sh ./tdbg_gpu_kernels
  kernels_said=$?
  if [[ $bench ]]; then
    ./tdbg_gpu_kernels --bench
    for model in cnn tensors1200 gpt124_fp32 gpt124_bf16 gpt1b; do "$python" bench/cost.py "$model"; done
  fi
  case $kernels_said in 0) echo "kernels: passed" ;; 77) echo "kernels: skipped, no GPU" ;; *) echo "kernels: FAILED" ;; esac
  "$python" summarize_tests.py results.xml
  [[ $pytest_said == 0 && ($kernels_said == 0 || $kernels_said == 77) ]]
} 2>&1 | tee results.txt
exit "${PIPESTATUS[0]}"
