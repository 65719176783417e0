"""Explores for longer than the tests do; see docs/decisions/exploring.md.

    python -m tests.protocol walk --seconds=600 --seed=1000    prints each schedule that breaks an invariant, shrunk
    python -m tests.protocol every --setting=single            each fault at each point
    python -m tests.protocol planted --seconds=60              finds all planted faults, and prints a table
    python -m tests.protocol show SEED --setting=sync          prints what happens in one walk
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import Counter

from tests.protocol import explorer, planted
from tests.protocol.explorer import Schedule, Setting

SETTINGS = {
    "async": Setting(), "two_ps": Setting(num_ps=2), "sync": Setting(num_ps=2, num_workers=3, is_sync=True),
    "backup": planted.BACKUP, "bound": planted.BOUND, "slow_opening": planted.SLOW_OPENING,
    "data": Setting(num_workers=3, is_sync=True, data_steps=((1, 3),)), "data_of_one": planted.DATA_OF_ONE,
    "data_of_chief": planted.DATA_OF_CHIEF, "late_save": planted.SYNC_LATE_SAVE, "single": Setting(num_workers=1),
    "sync_two": planted.SYNC, **explorer.PART_SETTINGS,
}


def _report(schedule: Schedule, failure: str) -> None:
    shortest = explorer.shrink(schedule, failure)
    print(f"BROKEN {shortest.setting}\n  {shortest}\n  {explorer.run(shortest).failure or failure}", flush=True)


class _Runs:
    """Runs schedules, and prints the first one that breaks an invariant in some way."""

    def __init__(self) -> None:
        self._begin_secs, self._cpu_secs = time.perf_counter(), time.process_time()
        self._broken: Counter[str] = Counter()
        self._num_runs = 0

    @property
    def secs(self) -> float:
        return time.perf_counter() - self._begin_secs

    def run(self, schedule: Schedule) -> None:
        failure = explorer.run(schedule).failure
        self._num_runs += 1
        if failure:
            self._broken[explorer.kind_of(failure)] += 1
            if self._broken[explorer.kind_of(failure)] == 1:
                _report(schedule, failure)

    def summary(self) -> str:
        cpu_secs = time.process_time() - self._cpu_secs
        return (f"{self._num_runs} schedules, {self.secs:.0f} s, {cpu_secs:.0f} s of CPU time, "
                f"{self._num_runs / cpu_secs:.1f} a second of it; {sum(self._broken.values())} broken")


def _walk(options: argparse.Namespace, names: list[str]) -> None:
    points = {name: explorer.run(Schedule(SETTINGS[name])).points for name in names}
    runs = _Runs()
    for seed in itertools.count(options.seed):
        if runs.secs > options.seconds:
            break
        name = names[seed % len(names)]
        runs.run(explorer.walk(SETTINGS[name], seed, points[name], kinds=options.kinds))
    print(runs.summary(), flush=True)


def _every(options: argparse.Namespace, names: list[str]) -> None:
    for name in names:
        runs = _Runs()
        for schedule in explorer.every_schedule(SETTINGS[name], step=options.step, kinds=options.kinds):
            runs.run(schedule)
        print(f"{name}: {runs.summary()}", flush=True)


def _planted(seconds: float, text: str) -> None:
    print("| planted fault | runs | seconds | shortest schedule | what breaks |\n|---|---|---|---|---|")
    for fault in [fault for fault in planted.PLANTED if text in fault.name]:
        found = planted.find(fault, seconds)
        if found.schedule is None:
            print(f"| {fault.name} | {found.num_runs} | - | not found | {fault.why_not or 'MISSED'} |", flush=True)
        else:
            shortest = planted.shrunk(fault, found)
            cells = (fault.name, found.num_runs, f"{found.secs:.1f}", shortest, found.failure[:70])
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.protocol")
    parser.add_argument("verb", choices=["walk", "every", "planted", "show"])
    parser.add_argument("seed_to_show", nargs="?", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--step", type=int, default=1, help="takes only each n-th point of a fault and a task")
    parser.add_argument("--kinds", type=lambda text: tuple(text.split(",")), default=tuple(explorer.KINDS))
    parser.add_argument("--only", default="", help="the planted faults with this in their name")
    parser.add_argument("--setting", choices=list(SETTINGS))
    options = parser.parse_args()
    names = [options.setting] if options.setting else list(SETTINGS)
    if options.verb == "walk":
        _walk(options, names)
    elif options.verb == "every":
        _every(options, names)
    elif options.verb == "planted":
        _planted(options.seconds, options.only)
    else:
        setting = SETTINGS[names[0]]
        schedule = explorer.walk(setting, options.seed_to_show, explorer.run(Schedule(setting)).points,
                                 kinds=options.kinds)
        print(schedule, *explorer.run(schedule, keeps_trace=True).trace, sep="\n")


if __name__ == "__main__":
    _main()
