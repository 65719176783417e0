"""Checks the house: how much a task imports without parts, and that ps_train trains without each of its parts.

    python scripts/check_layout.py                        what `ps_train.tasks.run` imports, parts left out
    python scripts/check_layout.py --without_parts        leaves all parts out of a copy
    python scripts/check_layout.py --without_parts NAME   then those with a name in turn, or "each"
    --unit_tests, --cluster_tests                         runs the spine's there, too: the latter take minutes for each

A part that is left out takes those with it that import it. In the copy, a training must pass; without all parts, the
spine's unit tests, too.
"""

from __future__ import annotations

import argparse
import ast
import collections
import gc
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from typing import IO

REPO = pathlib.Path(__file__).resolve().parents[1]
# Of the spine that one task imports: as measured, to keep it from growing again.
MOST_MODULES, MOST_LINES = 72, 13_040
_UNIT_TESTS = tuple(f"tests/unit/{folder}" for folder in (
    "runtime", "cluster", "coordination", "storage", "plugins", "training", "updates"))
_CLUSTER_TESTS = tuple(f"tests/cluster/{folder}" for folder in ("coordination", "storage", "training", "updates"))
_DEADLINE_SECS = 900.0
_POLL_SECS = 0.1
_AT_A_TIME = 3  # on two cores: a third of it is waiting
_TRAIN_STEPS = 20


def modules_of(package: pathlib.Path) -> dict[str, str]:
    """Returns dotted name -> source of each module of a package."""
    sources = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return sources


def imports_of(modules: dict[str, str]) -> dict[str, set[str]]:
    """Returns module -> the modules of the same package that it imports, for types and in functions, too."""
    return {name: {target for target in _imported(source, modules) if target in modules}
            for name, source in modules.items()}


def _imported(source: str, modules: dict[str, str]) -> set[str]:
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            imported.update(name if name in modules else node.module for name in names)
        elif isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
    return imported


def closure(start: str, imports: dict[str, set[str]]) -> set[str]:
    """Returns what importing a module of the spine brings, the `__init__` of folders included; parts are left out."""
    seen, waiting = set(), [start]
    while waiting:
        name = waiting.pop()
        if name in seen or name.startswith("ps_train.parts") and name != "ps_train.parts.table":
            continue
        seen.add(name)
        waiting += [*imports[name], name.rpartition(".")[0]] if "." in name else imports[name]
    return seen


def parts_imported_by(name: str, imports: dict[str, set[str]]) -> set[str]:
    """Returns the parts that a part imports, directly or through one of them, and itself."""
    seen, waiting = set(), [name]
    while waiting:
        part = waiting.pop()
        if part not in seen:
            seen.add(part)
            waiting += {target.split(".")[2] for module, targets in imports.items() for target in targets
                        if f"{module}.".startswith(f"ps_train.parts.{part}.")
                        and target.startswith("ps_train.parts.") and target != "ps_train.parts.table"}
    return seen


def parts_with(name: str, imports: dict[str, set[str]]) -> set[str]:
    """Returns a part and those that need it, because they import it or one that does."""
    needed_by = collections.defaultdict(set)
    for module, targets in imports.items():
        for target in targets:
            if module.startswith("ps_train.parts.") and target.startswith("ps_train.parts."):
                needed_by[target.split(".")[2]].add(module.split(".")[2])
    seen, waiting = set(), [name]
    while waiting:
        part = waiting.pop()
        if part not in seen and part != "table":
            seen.add(part)
            waiting += needed_by[part]
    return seen


def report_closure() -> bool:
    """Prints what the task runner imports without parts; returns whether that is within the limits."""
    modules = modules_of(REPO / "ps_train")
    brought = closure("ps_train.tasks.run", imports_of(modules))
    lines = sum(modules[name].count("\n") for name in brought)
    print(f"ps_train.tasks.run imports {len(brought)} modules, {lines:,} lines, of {len(modules)} modules, "
          f"{sum(source.count(chr(10)) for source in modules.values()):,} lines (at most {MOST_MODULES} and "
          f"{MOST_LINES:,})")
    return len(brought) <= MOST_MODULES and lines <= MOST_LINES


def leave_out(repo: pathlib.Path, parts: set[str]) -> None:
    """Removes the folders of parts, and their rows of the table."""
    table = repo / "ps_train/parts/table.py"
    text = table.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    rows = {node.args[0].value: node for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "PartRow"}
    for part in parts:
        shutil.rmtree(repo / "ps_train/parts" / part)
        if part in rows:
            lines[rows[part].lineno - 1:rows[part].end_lineno] = [""] * (
                rows[part].end_lineno - rows[part].lineno + 1)
    table.write_text("".join(lines), encoding="utf-8")


def trains_without(parts: set[str], output: IO[bytes], tests: Sequence[str]) -> int:
    """Forks a process that runs the tests and a training in a copy without some parts; returns its pid.

    This process has imported TensorFlow for all of them, and nothing of ps_train.
    """
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()  # what it starts ends with it
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        with tempfile.TemporaryDirectory(prefix="ps_train-layout-") as folder:
            copy = pathlib.Path(folder, "repo")
            _copy_repo(copy)
            leave_out(copy, parts)
            code = _test(copy, tests) or _train(pathlib.Path(folder, "train"))
    except Exception:  # noqa: BLE001 (it is in the output)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _copy_repo(copy: pathlib.Path) -> None:
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=REPO,
                            capture_output=True, text=True, check=True)
    for path in listed.stdout.splitlines():
        if (REPO / path).is_file():
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPO / path, copy / path)


def _test(copy: pathlib.Path, tests: Sequence[str]) -> int:
    """Runs tests of a copy, if any, which becomes the folder of this process; returns pytest's exit code."""
    os.chdir(copy)
    sys.path[0] = os.environ["PYTHONPATH"] = str(copy)
    if not tests:
        return 0
    import pytest  # noqa: PLC0415

    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests]))


def _train(train_dir: pathlib.Path) -> int:
    """Trains with a ps and a worker in threads of this process; returns 0 if the checkpoint has all steps."""
    from ps_train import testing  # noqa: PLC0415

    testing.run_in_threads("tests.plugins.tiny", "tests.plugins.tiny", train_dir=train_dir, num_workers=1,
                           train_steps=_TRAIN_STEPS)
    return 0 if testing.read_checkpoint(train_dir)["global_step"] >= _TRAIN_STEPS else 1


def check_parts(left_out: Sequence[tuple[str, set[str], Sequence[str]]]) -> bool:
    """Leaves out parts, and prints how it went; returns whether all is well.

    Args:
      left_out: what to print, the parts that are left out of one copy, and the tests that must pass in it.
    """
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_USE_LEGACY_KERAS="1", CUDA_VISIBLE_DEVICES="-1")
    import tensorflow  # noqa: F401, PLC0415 (once, for the forks of this process)

    gc.collect()
    gc.freeze()
    waiting, running, has_passed = list(left_out), {}, True
    while waiting or running:
        while waiting and len(running) < _AT_A_TIME:
            (name, parts, tests), output = waiting.pop(0), tempfile.TemporaryFile()  # noqa: SIM115 (closed at the end)
            running[trains_without(parts, output, tests)] = name, output, time.monotonic()
        for pid in [pid for pid, (_, _, started_secs) in running.items()
                    if time.monotonic() > started_secs + _DEADLINE_SECS]:
            os.killpg(pid, signal.SIGKILL)
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            has_passed = _print_result(*running.pop(pid), os.waitstatus_to_exitcode(status)) and has_passed
        else:
            time.sleep(_POLL_SECS)
    return has_passed


def _print_result(name: str, output: IO[bytes], started_secs: float, code: int) -> bool:
    print(f"without {name}: {'FAILED' if code else 'passed'} in {time.monotonic() - started_secs:.0f} s", flush=True)
    with output:
        output.seek(0)
        if code:
            print(output.read().decode(errors="replace")[-8000:])
    return code == 0


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--without_parts", nargs="*", metavar="NAME", help="leave out all parts, then these, or each")
    parser.add_argument("--unit_tests", action="store_true", help="run the spine's unit tests in each copy")
    parser.add_argument("--cluster_tests", action="store_true", help="run the spine's cluster tests in each copy")
    options = parser.parse_args()
    if options.without_parts is None:
        return 0 if report_closure() else 1
    imports, cluster_tests = imports_of(modules_of(REPO / "ps_train")), _CLUSTER_TESTS * options.cluster_tests
    tests = _UNIT_TESTS * options.unit_tests + cluster_tests
    names = sorted(path.parent.name for path in (REPO / "ps_train/parts").glob("*/__init__.py"))
    left_out = names if options.without_parts == ["each"] else options.without_parts
    if unknown := set(left_out).difference(names):
        parser.error(f"--without_parts: no part {', '.join(sorted(unknown))}; they are {', '.join(names)}")
    # The first shows that the spine's tests need no part.
    return 0 if check_parts([
        ("all parts", set(names), _UNIT_TESTS + cluster_tests),
        *((name, parts_with(name, imports), tests) for name in left_out)]) else 1


if __name__ == "__main__":
    sys.exit(main())
