# Sourced by run_local.sh, run_tests.sh and .ci/run, in the project's folder.
#
#   use_python EXTRA MODULE...   sets $PYTHON to a Python that has ps_train's requirements and the modules:
#                                the active one, else that of the folder $PS_TRAIN_VENV (default .venv), which is
#                                made where it is missing, empty or half made. EXTRA is what pip installs, "" or "[test]".
#   make_venv EXTRA              makes or completes the folder, whatever is active.

VENV="${PS_TRAIN_VENV:-.venv}"

tell() { echo "setup: $*" >&2; }

# Succeeds if a Python has the modules and a TensorFlow that is new enough, under whatever name it was installed; else
# prints why not.
has_modules() {
  local python=$1
  shift
  "$python" -m ps_train.runtime.installed "$@" 2>/dev/null
}

# Prints the first Python that TensorFlow has wheels for, and that can make an environment.
find_python() {
  local name
  for name in python3 python3.12 python3.11 python3.10 python3.13 python3.9; do
    if "$name" -c 'import ensurepip, sys, venv; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  tell "no Python from 3.9 to 3.13 with the module venv was found; install one, such as with" \
    "\`apt-get install python3 python3-venv\`, or activate an environment that has TensorFlow"
  return 1
}

# Marks the folder as half made. Only the mark of a folder in which nothing was has a text: another is never removed.
begin_venv() {
  local mark=$1
  if [[ -z "$(ls -A "$VENV" 2>/dev/null)" ]]; then
    mkdir -p "$VENV"
    echo "$VENV was new" >"$mark"
  elif [[ -e "$VENV/pyvenv.cfg" ]]; then
    touch "$mark"
  else
    tell "$VENV has files and is no environment of Python; let PS_TRAIN_VENV name a new or empty folder"
    return 1
  fi
}

make_venv() {
  local extra=$1 extras=$1 python
  local done_mark="$VENV/ps_train$extra.installed" making_mark="$VENV/ps_train.being_made"
  PYTHON="$VENV/bin/python"
  if [[ "$done_mark" -nt setup.py && -x "$PYTHON" ]]; then
    return
  fi
  if [[ -s "$making_mark" ]]; then
    tell "$VENV is half made: making it again"
    rm -rf "$VENV"
  fi
  if [[ ! -x "$PYTHON" || -e "$making_mark" ]]; then
    python=$(find_python)
    begin_venv "$making_mark"
    tell "making the environment $VENV with $("$python" --version)"
    "$python" -m venv "$VENV"
  fi
  # The package itself requires no TensorFlow, since one of another name may be there: of those in setup.py.
  if has_modules "$PYTHON" >/dev/null; then
    tell "installing ps_train$extra into $VENV"
  else
    tell "installing ps_train$extra, with TensorFlow, into $VENV: about 2 GB, once; it takes some minutes"
    extras="[tensorflow${extra:+,${extra#[}}"
    extras="${extras%]}]"
  fi
  "$PYTHON" -m pip install --quiet --disable-pip-version-check -e ".$extras"
  touch "$done_mark"
  rm -f "$making_mark"
}

use_python() {
  local extra=$1 candidate reason
  shift
  for candidate in ${VIRTUAL_ENV:+"$VIRTUAL_ENV/bin/python"} python3; do
    if [[ -n "${PS_TRAIN_VENV:-}" ]]; then
      break
    elif reason=$(has_modules "$candidate" absl numpy "$@"); then
      PYTHON=$candidate
      return
    elif [[ "$candidate" == "${VIRTUAL_ENV:-}/bin/python" ]]; then
      tell "not using the active environment: $reason"
    fi
  done
  make_venv "$extra"
}
