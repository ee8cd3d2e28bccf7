#!/usr/bin/env bash
# The tools tdbg is measured against, each in an environment of its own (they disagree about numpy and protobuf).
# Idempotent; about 3 GB of disk.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

environment() {  # environment NAME PACKAGES...: creates .venv-NAME once, or adds to what tools/setup.sh made
  local dir=.venv-$1
  shift
  [ -e "$dir/.complete-bench" ] && return
  printf 'bench: making %s (%s)\n' "$dir" "$*" >&2
  "$python" -m venv "$dir"
  "$dir/bin/pip" install -q torch==2.13.0
  "$dir/bin/pip" install -q "$@"
  touch "$dir/.complete" "$dir/.complete-bench"
}

# smdebug's wheel does not name what it needs.
environment smdebug smdebug==1.0.34 'numpy<2' 'pandas<2.2' 'bokeh<3' requests psutil packaging scipy
environment rivals numpy wandb tensorboard trainscope safetensors
