"""The tool that measures recoveries: its table, and that it measures a real one."""

from __future__ import annotations

import re

from benchmarks import recovery
from benchmarks.recovery import Recovery


def test_the_table_has_medians_and_the_largest():
    """A row for each victim; seconds with one decimal, steps without."""
    found = {"a worker": [Recovery(0.1, 6.0, 3.0, 0), Recovery(0.2, 9.5, 3.1, 4), Recovery(0.12, 5.0, 2.9, 1)]}
    assert recovery.table("async", found).splitlines()[-1] == (
        "| async | a worker | 0.1 (0.2) | 6.0 (9.5) | 3.0 (3.1) | 1 (4) |")


def test_it_measures_the_loss_of_a_ps(monkeypatch, capsys):
    """A real cluster: the start is a part of the pause, and steps are taken again."""
    monkeypatch.setattr(recovery, "VICTIMS", {"one ps of two": ["ps-1"]})
    monkeypatch.setattr(recovery, "_STEADY_SECS", 1.0)
    monkeypatch.setattr(recovery, "import_secs", lambda: 2.5)
    recovery.main(["--passes=1"])
    row = re.search(r"\| async \| one ps of two \| (\S+) \(.*\) \| (\S+) \(.*\) \| (\S+) \(.*\) \| (\d+) \(",
                    capsys.readouterr().out)
    cluster_secs, role_secs, start_secs = map(float, row.groups()[:3])
    assert 0 < start_secs <= role_secs
    assert start_secs <= cluster_secs
    assert int(row[4]) >= 0
