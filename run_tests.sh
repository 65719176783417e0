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
jobs=$(( $(getconf _NPROCESSORS_ONLN) + 1 ))
if [[ "${1:-}" == quick ]]; then
  folders=(tests/unit tests/cluster)
elif (( $# > 0 )); then
  exec "$PYTHON" -m pytest "$@"
fi

# See scripts/plan_tests.py. Tests of clusters and of processes also wait, so there is one group more at a time than there
# are cores.
export PYTHON
failed=0
"$PYTHON" scripts/plan_tests.py "${folders[@]}" | xargs -L 1 -P "$jobs" scripts/test_files.sh || failed=1
if (( failed )); then
  echo "tests failed: see above" >&2
  exit 1
fi
