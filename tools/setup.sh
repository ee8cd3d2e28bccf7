#!/usr/bin/env bash
# Makes a fresh Debian 12 (or a relative of it) able to build, test and demonstrate tdbg. Run as often as you
# like: with everything in place it prints nothing and takes under a second.
#
#   tools/setup.sh          system packages, .venv, and .venv-smdebug (the real smdebug, which tests read and write with)
#   tools/setup.sh --ci     and clang-19 with its formatter and libFuzzer, and doxygen, which CI uses
#   tools/setup.sh --packages       system packages only, with --ci those of CI, too
#
# Environment:
#   TDBG_PYTHON    the Python that .venv is made from, 3.10 or later     (default: python3 of PATH)
#   TDBG_VENV      where the virtual environment lies                    (default: .venv in the repository)
#   TDBG_TORCH     requirement to install instead of the pinned torch, e.g. torch==2.13.0+cpu
#   TDBG_SKIP_APT  1: install no system packages (no root, or not Debian); what is missing is named
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

packages=(
  g++ make cmake ninja-build ccache mold pkg-config valgrind git
  libhwy-dev nlohmann-json3-dev libyaml-cpp-dev libpcre2-dev libcurl4-openssl-dev libssl-dev libexpat1-dev libcli11-dev libfmt-dev
  libxxhash-dev libprotozero-dev libsimdjson-dev libsqlite3-dev libboost-dev libgtest-dev libgmock-dev libbenchmark-dev
  dataset-fashion-mnist python3-venv python3-dev chromium
)
packages_only=0
for argument in "$@"; do
  case $argument in
    --ci) packages+=(clang-19 clang-format-19 libclang-rt-19-dev doxygen) ;;
    --packages) packages_only=1 ;;
    *) die "unknown argument $argument (only --ci, --packages)" ;;
  esac
done

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    # ${db:...} and not `dpkg -s`: that one is content with a removed package whose configuration is left.
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if [[ ${TDBG_SKIP_APT:-0} == 1 ]]; then
    say "TDBG_SKIP_APT=1, not installing: ${missing[*]}"
    return 0
  fi
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "these packages need root to install: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} system packages: ${missing[*]}"
  local log
  log=$(mktemp)
  # The lists of an image may be older than the archive's files, and then nothing can be fetched.
  if ! { "${as_root[@]}" apt-get update -q &&
         "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
           "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    rm -f "$log"
    die "apt-get failed"
  fi
  rm -f "$log"
}

install_python() {
  local python=${TDBG_PYTHON:-python3} venv=${TDBG_VENV:-.venv}
  command -v "$python" >/dev/null || die "no $python in PATH; TDBG_PYTHON names another"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "$("$python" --version) is too old: 3.10 or later is needed (TDBG_PYTHON names another)"
  if ! [[ -x $venv/bin/python ]]; then
    say "creating $venv"
    "$python" -m venv "$venv" || die "cannot create $venv"
  fi
  # The list holds for one Python; for another one pip looks up what goes together.
  local list=tools/requirements.txt wanted version
  version=$("$venv/bin/python" -c 'import sys; print("Python %d.%d" % sys.version_info[:2])')
  if ! grep -q "$version;" <(head -n 1 "$list"); then
    list=tools/requirements.in
    say "$version has no list of versions (tools/refresh.py makes one): the latest that go together are taken"
  fi
  wanted=$(grep -v '^#' "$list")
  if [[ -n ${TDBG_TORCH:-} ]]; then
    wanted=$(printf '%s\n' "$wanted" | grep -v '^torch=='; printf '%s\n' "$TDBG_TORCH")
  fi
  # The stamp holds what was asked for, so that a changed list installs and an unchanged one does not even ask pip.
  local stamp=$venv/.tdbg-requirements
  [[ -f $stamp && $(<"$stamp") == "$wanted" ]] && return 0
  say "installing Python packages into $venv (the first time about a gigabyte, mostly torch)"
  printf '%s\n' "$wanted" >"$venv/requirements.tdbg"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$venv/requirements.tdbg" ||
    die "pip failed"
  printf '%s\n' "$wanted" >"$stamp"
}

# It has a place of its own (tools/smdebug.in says why). torch is looked up in .venv, after everything that lies here: a second
# copy would only cost time and disk.
install_smdebug() {
  local python=${TDBG_PYTHON:-python3} venv=.venv-smdebug torch=${TDBG_VENV:-.venv}
  local wanted
  wanted=$(<tools/smdebug.txt)
  [[ -f $venv/.complete && $(<"$venv/.complete") == "$wanted" ]] && return 0
  say "creating $venv"
  # Cleared: what an earlier list left there would see all of .venv's packages as its own.
  "$python" -m venv --clear "$venv" || die "cannot create $venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r tools/smdebug.txt || die "pip failed"
  "$torch/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))' \
    >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/torch_of_tdbg.pth"
  printf '%s\n' "$wanted" >"$venv/.complete"
}

if command -v dpkg-query >/dev/null; then
  install_packages
else
  say "no dpkg here: please install the equivalents of: ${packages[*]}"
fi
((packages_only)) && exit
install_python
install_smdebug
