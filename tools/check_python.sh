#!/usr/bin/env bash
# ruff over all Python, mypy (strict) over what a user can import: pyproject.toml says what they look at and why not at more.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${TDBG_VENV:-.venv}/bin/python

for tool in ruff mypy; do
  if ! "$python" -m "$tool" --version > /dev/null 2>&1; then
    echo "check_python: $tool is not in ${python%/bin/python} (tools/requirements.in names it): tools/setup.sh" >&2
    exit 1
  fi
done
# Both run, so that one go shows all faults.
status=0
"$python" -m ruff check --quiet --no-cache --output-format concise . || status=1
"$python" -m mypy --cache-dir build/mypy --no-error-summary || status=1
exit $status
