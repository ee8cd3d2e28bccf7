#!/usr/bin/env bash
# Common misspellings, by codespell (in .venv, make setup).
#
#   tools/check_spelling.sh [FILE...]      default: everything that git tracks, and new files that it does not ignore
set -euo pipefail
cd "$(dirname "$0")/.."
codespell=${TDBG_VENV:-.venv}/bin/codespell
[[ -x $codespell ]] || { echo "check_spelling: no $codespell; make setup installs it" >&2; exit 1; }

# Right as they are: names of ours and of smdebug's, halves of words in patterns.
names=nd,kinf,mape,filetest,numberin,debia,strat,pevents
# What users mistype in tests, to see what is said of it.
mistyped=paramters,colections,blok,weigths,weigth,wieght,wieghts,treshold,trian,widht
check() {  # check WORDS FILE...: what stands in quotes before "did you mean" is mistyped on purpose, as in an example
  (($# < 2)) || "$codespell" --ignore-words-list "$1" --ignore-regex '"\w+"; did you mean|conv1[.]wieght' "${@:2}"
}

if (($#)); then
  files=("$@")
else
  # Frozen bytes, pictures, what a notebook put out and what a compiler made are no texts of ours.
  mapfile -d '' files < <(git ls-files -z --cached --others --exclude-standard -- \
    ':!tests/golden' ':!fuzz/corpus' ':!*.svg' ':!*.ipynb' \
    ':!ui/dist' ':!ui/package-lock.json' ':!*.png')
fi
tests=() others=()
for file in "${files[@]}"; do
  case $file in
    tests/* | *_test.cc | *_test.py | */scenarios.txt | tools/check_spelling.sh) tests+=("$file") ;;
    *) others+=("$file") ;;
  esac
done
status=0
check "$names" "${others[@]}" || status=1
check "$names,$mistyped" "${tests[@]}" || status=1
exit $status
