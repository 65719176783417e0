"""The tool that measures large tables: that it trains, saves and restores one, and finds the right values."""

from __future__ import annotations

import re

import pytest

from benchmarks import large_tables


@pytest.mark.parametrize("kind", [["--rule=adagrad"], ["--dynamic"]], ids=["fixed", "dynamic"])
def test_a_small_table_is_trained_saved_and_restored_on_another_number_of_ps(
    kind, tmp_path, capsys, forked_group
):
    """Each sampled value is what its id and one update make it, before and after the restore."""
    large_tables.main(["--num_rows=5000", "--batch_size=1000", "--num_sampled=300", f"--work_dir={tmp_path}", *kind])
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if "5,000 rows x 8" in line)
    errors = [float(cell) for cell in re.findall(r"\| ([\d.e+-]+) (?=\|)", row)]
    assert len(errors) == 2 and max(errors) < 1e-4
    assert len(re.findall(r"\| (?:ps|worker)-\d of [23] ps \| \d+ MB \| \+ \d+ MB \|", printed)) == 7
