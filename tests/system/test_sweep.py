"""The sweep of docs/callbacks.md, taken from the page: eight trials with Optuna, each a cluster of its own."""

from __future__ import annotations

import re

import pytest

from tests import pages
from tests.processes import DEADLINE_SECS


def test_a_sweep_prunes_trials_that_are_worse(tmp_path):
    """Bad learning rates end early, the best one does not, and all results are in one table."""
    pytest.importorskip("optuna", reason="needs optuna")
    script = pages.block("docs/callbacks.md", "python", "# sweep.py")
    # Slow enough for evaluations during training.
    (tmp_path / "sweep.py").write_text(script.replace("data.digits", "tests.plugins.slow"))
    output = pages.run_script("sweep.py", tmp_path, timeout_secs=10 * DEADLINE_SECS)
    rows = re.findall(r"^(\d)  (\S+)  (PRUNED|COMPLETE)\s+(\S+)$", output, re.MULTILINE)
    assert [int(number) for number, *_ in rows] == list(range(8)), output
    assert {state for _, _, state, _ in rows} == {"PRUNED", "COMPLETE"}, output
    best = max(rows, key=lambda row: float(row[3]))
    assert best[2] == "COMPLETE" and float(best[3]) > 0.8, output
    assert all((tmp_path / "sweep" / number / "journal.jsonl").exists() for number, *_ in rows)
