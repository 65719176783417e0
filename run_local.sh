#!/usr/bin/env bash
# Runs a whole cluster on this machine, 2 ps + 2 workers unless told otherwise; sets up what is missing first.
#   ./run_local.sh [--num_ps=2] [--num_workers=2] [--tmux] [any flag of ps_train]
#   ./run_local.sh keras --strategy=multi_worker_mirrored [any flag of ps_train keras]
set -euo pipefail

called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/setup_env.sh
if [[ "${1:-}" == keras ]]; then
  use_python "[keras]" tf_keras
else
  use_python ""
fi
PYTHON=$(command -v "$PYTHON")
[[ "$PYTHON" = /* ]] || PYTHON=$PWD/$PYTHON

# Flags name folders and plug-ins as seen from where the user is; ours are found behind these.
if [[ "$called_from" != "$PWD" ]]; then
  export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
  cd "$called_from"
fi
exec "$PYTHON" -m ps_train launch "$@"
