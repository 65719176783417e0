#!/usr/bin/env bash
# Runs the tests of some files with $PYTHON; prints their names and pytest's last line when they have passed, and all
# of their output if not.
set -uo pipefail

output=$(mktemp)
trap 'rm -f "$output"' EXIT
"$PYTHON" -m pytest "$@" > "$output" 2>&1
code=$?
if (( code == 0 )); then
  printf '%s\n%s\n' "$*" "$(tail -n 1 "$output")"
else
  cat "$output"
fi
exit $(( code != 0 ))
