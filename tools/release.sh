#!/usr/bin/env bash
# Makes a release: checks everything first, then changes the version and the changelog, builds the wheels, commits and tags.
# Nothing leaves this machine; what is to be pushed is printed at the end.
#
#   tools/release.sh [--dry-run] VERSION      VERSION: MAJOR.MINOR.PATCH, later than the one in pyproject.toml
#
# --dry-run checks all that can be checked before the first change, says what would be done, and changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'release: %s\n' "$*" >&2; exit 1; }

dry=0
if [[ ${1:-} == --dry-run ]]; then dry=1; shift; fi
version=${1:-}
(($# == 1)) && [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die 'usage: tools/release.sh [--dry-run] MAJOR.MINOR.PATCH'
now=$(tools/check_version.py --print)
# None of what follows is worth anything in a tree that others do not have.
[[ -z $(git status --porcelain) ]] || die "the working tree is not clean: $(git status --porcelain | head -n 3 | xargs)"
[[ $(printf '%s\n%s\n' "$now" "$version" | sort -V | tail -n 1) == "$version" && $version != "$now" ]] ||
  die "$version is not later than $now, the version in pyproject.toml"
git rev-parse -q --verify "refs/tags/v$version" >/dev/null && die "there is a tag v$version"
tools/check_version.py || die 'the versions disagree (above)'
entries=$(awk '/^## /{section = $2} section == "Next" && /^- /{n++} END{print n + 0}' CHANGELOG.md)
((entries)) || die 'CHANGELOG.md: nothing under "Next"'
loose=$(awk '/^## /{section = $2; category = 0} /^### (Added|Changed|Fixed)$/{category = 1}
             section == "Next" && /^- / && !category{print; exit}' CHANGELOG.md)
[[ -z $loose ]] || die "CHANGELOG.md: an entry under \"Next\" is in none of Added, Changed, Fixed: $loose"
make --no-print-directory check || die 'make check is red (above)'

if ((dry)); then
  printf 'release: %s after %s, %d changelog entries; would change pyproject.toml, smdebug-compat/pyproject.toml and CHANGELOG.md,\n' \
    "$version" "$now" "$entries"
  printf 'release: build dist/release, commit and tag v%s. Nothing was changed.\n' "$version"
  exit 0
fi

# Half a release is none: whatever fails from here on leaves the tree as it was.
trap 'git checkout -q -- pyproject.toml smdebug-compat/pyproject.toml CHANGELOG.md' ERR
sed -i "s/^version = \"$now\"\$/version = \"$version\"/" pyproject.toml smdebug-compat/pyproject.toml
sed -i "s/^## Next\$/## Next\n\n## $version, $(date -u +%F)/" CHANGELOG.md
tools/check_version.py
tools/wheels.sh dist/release
git commit -q -m "Release $version" -- pyproject.toml smdebug-compat/pyproject.toml CHANGELOG.md
git tag -a "v$version" -m "tdbg $version"
trap - ERR
printf 'release: %s is committed and tagged, its wheels are in dist/release. To publish: git push --follow-tags\n' "$version"
