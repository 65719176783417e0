"""Explores for longer than the tests do; see docs/decisions/exploring.md.

    python -m tests.protocol walk --seconds=600 --seed=1000    prints each schedule that breaks an invariant, shrunk
    python -m tests.protocol every --points=200                each fault at each point up to that one
    python -m tests.protocol planted --seconds=60              finds all planted faults, and prints a table
    python -m tests.protocol show SEED --setting=sync          prints what happens in one walk
"""

from __future__ import annotations

import argparse
import time

from tests.protocol import explorer, planted
from tests.protocol.explorer import Schedule, Setting

SETTINGS = {
    "async": Setting(), "two_ps": Setting(num_ps=2), "sync": Setting(num_ps=2, num_workers=3, is_sync=True),
    "backup": planted.BACKUP, "bound": Setting(num_workers=3, flags=(("staleness_bound", 2),)),
    "data": Setting(num_workers=3, is_sync=True, data_steps=((1, 3),)),
}


def _report(schedule: Schedule, failure: str) -> None:
    shortest = explorer.shrink(schedule, failure)
    print(f"BROKEN {shortest.setting}\n  {shortest}\n  {explorer.run(shortest).failure or failure}", flush=True)


def _walk(seconds: float, first_seed: int, names: list[str]) -> None:
    points = {name: explorer.run(Schedule(SETTINGS[name])).points for name in names}
    begin_secs, num_runs, broken = time.perf_counter(), 0, set()
    while time.perf_counter() - begin_secs < seconds:
        name = names[num_runs % len(names)]
        schedule = explorer.walk(SETTINGS[name], first_seed + num_runs, points[name])
        failure = explorer.run(schedule).failure
        num_runs += 1
        if failure and explorer.kind_of(failure) not in broken:
            broken.add(explorer.kind_of(failure))
            _report(schedule, failure)
    print(f"{num_runs} schedules, {num_runs / (time.perf_counter() - begin_secs):.1f} a second")


def _every(num_points: int, names: list[str]) -> None:
    for name in names:
        begin_secs, num_runs = time.perf_counter(), 0
        for schedule in explorer.every_schedule(SETTINGS[name], range(1, num_points)):
            failure = explorer.run(schedule).failure
            num_runs += 1
            if failure:
                _report(schedule, failure)
        print(f"{name}: {num_runs} schedules, {num_runs / (time.perf_counter() - begin_secs):.1f} a second", flush=True)


def _planted(seconds: float) -> None:
    print("| planted fault | runs | seconds | shortest schedule | what breaks |\n|---|---|---|---|---|")
    for fault in planted.PLANTED:
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
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--setting", choices=list(SETTINGS))
    options = parser.parse_args()
    names = [options.setting] if options.setting else list(SETTINGS)
    if options.verb == "walk":
        _walk(options.seconds, options.seed, names)
    elif options.verb == "every":
        _every(options.points, names)
    elif options.verb == "planted":
        _planted(options.seconds)
    else:
        setting = SETTINGS[names[0]]
        schedule = explorer.walk(setting, options.seed_to_show, explorer.run(Schedule(setting)).points)
        print(schedule, *explorer.run(schedule, keeps_trace=True).trace, sep="\n")


if __name__ == "__main__":
    _main()
