#!/usr/bin/env bash
# Rehearses a release: builds the sdist and the wheel, checks them, installs the sdist, and runs it. Uploads nothing.
#   scripts/rehearse_release.sh [FOLDER]    leaves the two files in FOLDER (default: in none)
set -euo pipefail
folder=${1:+$(realpath -m "$1")}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup_env.sh

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
files=${folder:-$scratch/files}
python=$(find_python)
pip="-m pip --quiet --disable-pip-version-check"

# setuptools writes build/ and *.egg-info beside setup.py, and takes old files from them into the wheel.
mkdir "$scratch/source"
tar -c --exclude=.git --exclude='.venv*' --exclude=build --exclude='*.egg-info' --exclude=__pycache__ \
  README.md LICENSE setup.py pyproject.toml ps_train models data | tar -x -C "$scratch/source"

"$python" -m venv "$scratch/tools"
"$scratch/tools/bin/python" $pip install build twine
"$scratch/tools/bin/python" -m build --outdir "$files" "$scratch/source" >"$scratch/build.log" ||
  { cat "$scratch/build.log" >&2; exit 1; }
"$scratch/tools/bin/python" -m twine check --strict "$files"/*

"$python" -m venv "$scratch/user"
"$scratch/user/bin/python" $pip install "$files"/*.tar.gz
cd "$scratch"  # where no ps_train lies but the installed one
user/bin/ps_train --help
user/bin/python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("tensorflow") is not None)' ||
  { echo "the sdist has installed TensorFlow" >&2; exit 1; }
tell "the release can be built and installed"
