#!/usr/bin/env bash
# Makes .venv-NAME, the environment in which the tests of one framework run: every package of tools/frameworks/NAME.txt, with
# its version (tools/refresh.py writes it). Frameworks disagree about numpy, so each has an environment of its own; torch and
# XGBoost are in .venv. With everything in place it prints nothing and takes under a second.
#
#   tools/setup_framework.sh NAME...      names: the files of tools/frameworks
#
# Environment: TDBG_PYTHON as in tools/setup.sh; the head of NAME.txt says for which one it is.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${TDBG_PYTHON:-python3}

for name in "$@"; do
  wanted=tools/frameworks/$name.in list=tools/frameworks/$name.txt
  if [[ ! -f $list ]]; then
    printf 'setup: no framework %s; there are: %s\n' "$name" "$(cd tools/frameworks && ls -- *.txt | sed 's/\.txt$//' | xargs)" >&2
    exit 2
  fi
  venv=.venv-$name
  # The stamp holds what was asked for: a changed list installs, an unchanged one does not even ask pip.
  [[ -f $venv/.complete && $(<"$venv/.complete") == "$(<"$list")" ]] && continue
  printf 'setup: creating %s (%s)\n' "$venv" "$(grep -v '^#' "$wanted" | xargs)"
  "$python" -m venv "$venv"
  options=()
  # What is taken without what it says that it needs may contradict the rest.
  if grep -q '^--no-deps' "$wanted"; then options=(--no-deps); fi
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${options[@]}" -r "$list"
  cp "$list" "$venv/.complete"
done
