#!/usr/bin/env bash
# Makes .venv-NAME, the environment in which the tests of one framework run: what tools/frameworks/NAME.txt asks
# for, and what the tests themselves need. Frameworks disagree about numpy, so each has an environment of its own;
# torch and XGBoost are in .venv. With everything in place it prints nothing and takes under a second.
#
#   tools/setup_framework.sh NAME...      names: the files of tools/frameworks
#
# A NAME.txt that was made from a NAME.in (tools/refresh_framework.sh) lists every package: nothing else is looked for.
#
# Environment: TDBG_PYTHON as in tools/setup.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${TDBG_PYTHON:-python3}
tests_want=(pytest pytest-rerunfailures pytest-timeout pytest-xdist safetensors)

for name in "$@"; do
  wanted=tools/frameworks/$name.txt
  if [[ ! -f $wanted ]]; then
    printf 'setup: no framework %s; there are: %s\n' "$name" "$(cd tools/frameworks && ls | sed 's/\.txt$//' | xargs)" >&2
    exit 2
  fi
  venv=.venv-$name
  # The stamp holds what was asked for: a changed list installs, an unchanged one does not even ask pip.
  stamp=$(cat "$wanted"; printf '%s\n' "${tests_want[*]}")
  [[ -f $venv/.complete && $(<"$venv/.complete") == "$stamp" ]] && continue
  printf 'setup: creating %s (%s)\n' "$venv" "$(grep -v '^#' "$wanted" | xargs)"
  "$python" -m venv "$venv"
  install=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
  if [[ -f tools/frameworks/$name.in ]]; then
    "${install[@]}" --no-deps -r "$wanted"
    "${install[@]}" "${tests_want[@]}"
  else
    "${install[@]}" -r "$wanted" "${tests_want[@]}"
  fi
  printf '%s\n' "$stamp" >"$venv/.complete"
done
