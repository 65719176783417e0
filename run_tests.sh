#!/usr/bin/env bash
# Runs the tests; sets up what is missing first.
#   ./run_tests.sh                             all of them
#   ./run_tests.sh quick                       those without processes: tests/unit and tests/cluster
#   ./run_tests.sh [any argument of pytest]    some, in one process
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/setup_env.sh

use_python "[test]" pytest hypothesis tf_keras
folders=(tests/unit tests/cluster tests/system)
jobs=$(( $(getconf _NPROCESSORS_ONLN) + 2 ))
if [[ "${1:-}" == quick ]]; then
  folders=(tests/unit tests/cluster)
elif (( $# > 0 )); then
  exec "$PYTHON" -m pytest "$@"
fi

# Tests of clusters and of processes also wait, so there are two groups more at a time than there are cores.
if ! "$PYTHON" scripts/plan_tests.py "${folders[@]}" | "$PYTHON" -m tests.run_groups "$jobs"; then
  echo "tests failed: see above" >&2
  exit 1
fi
