#!/usr/bin/env bash
# Runs a whole cluster on this machine, 2 ps + 2 workers unless told otherwise; sets up what is missing first.
#   ./run_local.sh [--num_ps=2] [--num_workers=2] [--tmux] [any flag of ps_train]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/setup_env.sh

use_python ""
exec "$PYTHON" -m ps_train launch "$@"
