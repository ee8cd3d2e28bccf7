#!/usr/bin/env bash
# Builds the pages of docs/, of every room and rule, and the reference of the Python and C++ interfaces into build/docs/site.
# Fails on a link or a reference that leads nowhere. The tools lie in an environment of their own, .venv-docs.
#
# The C++ reference needs doxygen (apt-get install doxygen); without it that part is left out, and it says so.
#
# Environment: TDBG_PYTHON as in tools/setup.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=.venv-docs out=build/docs
stamp=$(<tools/docs/requirements.txt)
if [[ ! -f $venv/.complete || $(<"$venv/.complete") != "$stamp" ]]; then
  printf 'docs: creating %s\n' "$venv"
  "${TDBG_PYTHON:-python3}" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r tools/docs/requirements.txt
  printf '%s\n' "$stamp" >"$venv/.complete"
fi

rm -rf "$out"
mkdir -p "$out/pages"
cpp=--no-cpp
if command -v doxygen >/dev/null; then
  doxygen tools/docs/Doxyfile
  cpp=--cpp
else
  echo 'docs: no doxygen here (apt-get install doxygen): the C++ reference is left out' >&2
fi
"$venv/bin/python" tools/docs/stage.py "$out/pages" $cpp
# --quiet would not only hide warnings but also not count them, and dead links are warnings.
NO_MKDOCS_2_WARNING=1 "$venv/bin/python" -m mkdocs build --strict -f "$out/mkdocs.yml" >"$out/log" 2>&1 || {
  grep -v '^INFO' "$out/log" >&2
  exit 1
}
printf 'docs: %s\n' "$out/site/index.html"
