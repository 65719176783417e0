#!/usr/bin/env bash
# Runs the tests; sets up what is missing first.
#   ./run_tests.sh                             those of the spine, of each part, the docs and the benchmarks if they
#                                              have changed since the last whole run, and some always
#   ./run_tests.sh quick                       of these, the ones without processes: all but tests/system
#   ./run_tests.sh all                         all; if they pass, notes in tests/record.json with what they did
#   ./run_tests.sh [any argument of pytest]    some, in one process
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/setup_env.sh
# Where it is set, each of the many processes would compile each module that it imports.
unset PYTHONDONTWRITEBYTECODE

use_python "[test]" pytest hypothesis tf_keras
folders=(tests/unit tests/protocol tests/cluster tests/system)
plan=("$PYTHON" -m scripts.plan_tests)
measured=()
case "${1:-}" in
  "") ;;
  quick) folders=(tests/unit tests/protocol tests/cluster) ;;
  all) plan+=(--all); measured=("$(mktemp)") ;;
  *) exec "$PYTHON" -m pytest "$@" ;;
esac

# Tests of clusters and of processes also wait, so there are two groups more at a time than there are cores.
jobs=$(( $(getconf _NPROCESSORS_ONLN) + 2 ))
if ! "${plan[@]}" "${folders[@]}" | "$PYTHON" -m tests.run_groups "$jobs" ${measured[@]+"${measured[@]}"}; then
  echo "tests failed: see above" >&2
  exit 1
fi
if (( ${#measured[@]} )); then
  "$PYTHON" -m scripts.plan_tests --record "${measured[0]}"
  rm "${measured[0]}"
fi
