#!/usr/bin/env bash
# Fails where clang-format would change something; with --fix, changes it.
set -euo pipefail
cd "$(dirname "$0")/.."

# Versions format differently, so another one would find faults in clean code.
formatter=${CLANG_FORMAT:-clang-format-19}
if ! command -v "$formatter" >/dev/null; then
  echo "check_format: $formatter is not installed (tools/setup.sh --ci installs it); nothing was checked" >&2
  exit "${TDBG_REQUIRE_FORMAT:-0}"
fi
folders=()
for folder in src include python/src examples tests bench fuzz; do
  if [[ -d $folder ]]; then folders+=("$folder"); fi
done
mapfile -d '' files < <(find "${folders[@]}" \( -name '*.h' -o -name '*.cc' \) -print0 | sort -z)
if [[ ${1:-} == --fix ]]; then
  "$formatter" -i "${files[@]}"
else
  "$formatter" --dry-run -Werror "${files[@]}"
fi
