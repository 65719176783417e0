#!/usr/bin/env bash
# Runs the tests; sets up what is missing first.
#   ./run_tests.sh                             all of them
#   ./run_tests.sh quick                       those without processes: tests/unit and tests/cluster
#   ./run_tests.sh [any argument of pytest]    some, in one process
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/setup_env.sh

use_python "[test]" pytest hypothesis tf_keras
folders=(tests)
if [[ "${1:-}" == quick ]]; then
  folders=(tests/unit tests/cluster)
elif (( $# > 0 )); then
  exec "$PYTHON" -m pytest "$@"
fi

# The pure tests take seconds, so they come first, in one process. Each other file has a process of its own: TensorFlow
# cannot stop a server, so the servers of a process add up, and with each of them some 85 threads and its memory. Two
# processes at a time: tests of processes mostly wait. The largest files come first, so that none is left alone at the
# end.
export PYTHON
failed=0
scripts/test_files.sh tests/unit || failed=1
find "${folders[@]}" -name 'test_*.py' -not -path 'tests/unit/*' -print0 | xargs -0 ls -S |
  xargs -n 1 -P 2 scripts/test_files.sh || failed=1
if (( failed )); then
  echo "tests failed: see above" >&2
  exit 1
fi
