#!/usr/bin/env bash
# Runs the tests; sets up what is missing first.
#   ./run_tests.sh [any argument of pytest]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/setup_env.sh

use_python "[test]" pytest hypothesis tf_keras
exec "$PYTHON" -m pytest "$@"
