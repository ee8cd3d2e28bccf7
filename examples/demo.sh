#!/usr/bin/env bash
# Two trainings of the same unmodified script: one with a hopeless learning rate, one with a sane one. Both are
# watched by the same two rules. The first is stopped by VanishingGradient, the second runs to its end.
set -euo pipefail
cd "$(dirname "$0")/.."
tdbg=${TDBG_BIN:-.venv/bin/tdbg}
python=${PYTHON:-.venv/bin/python}
runs=${1:-tdbg-runs/demo-$(date +%Y%m%d-%H%M%S)}

say() { printf '\n\033[1m%s\033[0m\n' "$*" | { [ -t 1 ] && cat || sed 's/\x1b\[[0-9;]*m//g'; }; }
watch_it() {  # watch_it NAME LR MORE...: trains under both rules
  local dir=$runs/$1 lr=$2
  shift 2
  "$tdbg" run --dir "$dir" --rule vanishing_gradient --rule loss_not_decreasing "$@" \
    --on-issue stop -- "$python" examples/fashion_mnist/train.py --lr "$lr" --steps 200
}

say "1. A hopeless learning rate: --lr 10"
code=0
watch_it hopeless 10 || code=$?
say "   exit code $code (3: stopped by a rule)"
[ "$code" = 3 ] || { echo "demo: the faulty training was not stopped" >&2; exit 1; }

say "2. The healthy twin: --lr 0.05"
watch_it healthy 0.05

say "3. What the runs hold"
"$tdbg" ls "$runs"
"$tdbg" status "$runs/hopeless"
"$tdbg" show "$runs/hopeless" gradient/Net_conv1.weight --field mean_abs
"$tdbg" check "$runs/healthy" --rule vanishing_gradient
say "4. What the rule that stopped it says of itself: tdbg rules show vanishing_gradient"
"$tdbg" rules show vanishing_gradient

say "5. A page that shows both, and a file of one of them to keep or to send"
"$tdbg" report "$runs/hopeless" -o "$runs/hopeless.html"

say "Every command above that starts with tdbg can be pasted here, once this was:  source .venv/bin/activate"
echo
echo "the report  $runs/hopeless.html"
echo "the page    $tdbg view $runs"
# With somebody there to look, the page is served at once.
if [ -t 0 ] && [ -t 1 ] && [ -z "${CI:-}" ]; then "$tdbg" view "$runs" --no-browser; fi
