#!/usr/bin/env bash
# Writes tools/frameworks/NAME.txt from NAME.in: every package that what is asked for there leads to, each in the latest version that
# goes with the others. For programs.in it takes minutes, and some gigabytes under build/ until it ends. Run the tests behind it
# (make test-programs) and commit the list.
#
#   tools/refresh_framework.sh NAME
#
# Environment: TDBG_PYTHON as in tools/setup.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
name=${1:?'which one? there is tools/frameworks/NAME.in for each'}
wanted=tools/frameworks/$name.in written=tools/frameworks/$name.txt venv=build/refresh-$name

rm -rf "$venv"
trap 'rm -rf "$venv"' EXIT
mkdir -p build
"${TDBG_PYTHON:-python3}" -m venv "$venv"
install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
# What stands below the line --no-deps is installed without what it says that it needs.
sed '/^--no-deps/,$d' "$wanted" >"$venv/with.txt"
sed '1,/^--no-deps/d' "$wanted" >"$venv/alone.txt"
install setuptools -r "$venv/with.txt"
install --no-deps -r "$venv/alone.txt"
{
  printf '# Written by tools/refresh_framework.sh from %s.in; not to be edited.\n' "$name"
  # A build's own part of a version (torch 2.13.0+cpu) is not to be had everywhere.
  "$venv/bin/python" -m pip list --disable-pip-version-check --format=freeze --exclude pip | sed 's/+[a-z0-9.]*$//'
} >"$venv/list.txt"
mv "$venv/list.txt" "$written"
