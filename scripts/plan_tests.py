"""Prints the test files of some folders in groups, one on a line, each of which a process runs; the longest come first.

A process costs a second, so short files share one. It keeps the servers that its tests have started and their memory,
so a group has an end, too; and so has the time for which the last one runs alone.

    python scripts/plan_tests.py FOLDER...
"""

from __future__ import annotations

import pathlib
import sys

_GROUP_SECS = {"unit": 60.0, "cluster": 60.0, "system": 60.0}
_SHORT_SECS = {"unit": 0.2, "cluster": 2.0, "system": 5.0}  # of a file that is not in the table
# Seconds of the long ones, roughly, as measured on two cores: of CPU time and of real waits, without the imports, which
# a group has once. `pytest --durations=0` tells those of tests.
_SECS = {
    "cluster/coordination/test_blackboard.py": 8,
    "cluster/coordination/test_heartbeat.py": 8,
    "cluster/parts/sharding/test_range_queue.py": 10,
    "cluster/data/test_clicks.py": 12,
    "cluster/data/test_criteo.py": 12,
    "cluster/data/test_digits.py": 10,
    "cluster/parts/tables/test_connection.py": 18,
    "cluster/parts/tables/test_export.py": 10,
    "cluster/parts/tables/test_modes.py": 25,
    "cluster/parts/tables/test_store.py": 13,
    "cluster/parts/tables/test_table_files.py": 12,
    "cluster/parts/own_train_op/test_update.py": 35,
    "cluster/graph/test_shaping.py": 12,
    "cluster/parts/tables/test_shaping.py": 10,
    "cluster/graph/test_bad_records.py": 15,
    "cluster/graph/test_hooks.py": 10,
    "cluster/graph/test_nan_guard.py": 8,
    "cluster/graph/test_packing.py": 50,
    "cluster/graph/test_transfer.py": 20,
    "cluster/parts/legacy/names/test_names.py": 12,
    "cluster/parts/legacy/test_estimator.py": 20,
    "cluster/parts/profile/test_part.py": 12,
    "cluster/storage/test_saver.py": 12,
    "cluster/parts/warm_start/test_part.py": 12,
    "cluster/parts/inference/test_on_checkpoint.py": 10,
    "cluster/tasks/test_ps.py": 10,
    "cluster/tasks/test_server.py": 8,
    "cluster/test_testing.py": 10,
    "cluster/models/test_click_learning.py": 35,
    "cluster/models/test_click_models.py": 15,
    "cluster/parts/evaluation_by_workers/test_evaluation_by_workers.py": 40,
    "cluster/training/test_fingerprint.py": 5,
    "cluster/training/test_loop.py": 6,
    "cluster/parts/sharding/test_dynamic_sharding.py": 40,
    "cluster/training/test_recovery.py": 30,
    "cluster/updates/test_local_steps.py": 35,
    "cluster/updates/sync/test_aggregation.py": 9,
    "cluster/parts/legacy/test_standalone.py": 10,
    "cluster/updates/sync/test_tensorflow_engine.py": 20,
    "cluster/updates/test_build.py": 10,
    "cluster/updates/test_chief.py": 30,
    "cluster/updates/test_staleness.py": 12,
    "cluster/parts/tables/test_update_modes.py": 30,
    "cluster/updates/test_unrolled.py": 25,
    "system/benchmarks/test_benchmarks.py": 28,
    "system/benchmarks/test_large_tables.py": 15,
    "system/benchmarks/test_recommender.py": 35,
    "system/benchmarks/test_recovery.py": 8,
    "system/coordination/test_agreement.py": 60,
    "system/deploy/test_deploy.py": 25,
    "system/deploy/test_slurm.py": 15,
    "system/parts/tables/test_tables.py": 20,
    "system/graph/test_devices.py": 25,
    "system/graph/test_queues.py": 30,
    "system/parts/keras/test_cluster.py": 35,
    "system/parts/keras/test_conversion.py": 15,
    "system/parts/keras/test_custom_loops.py": 40,
    "system/parts/keras/test_training.py": 40,
    "system/parts/doctor/test_doctor.py": 15,
    "system/launch/test_launcher.py": 45,
    "system/parts/ssh/test_remote.py": 90,
    "system/parts/legacy/test_classic.py": 60,
    "system/parts/legacy/test_kinds.py": 30,
    "system/recovery/test_chief.py": 40,
    "system/parts/evaluation_by_workers/test_evaluation_by_workers.py": 35,
    "system/recovery/test_local_steps.py": 25,
    "system/parts/sharding/test_recovery.py": 60,
    "system/recovery/test_ps.py": 80,
    "system/recovery/test_stopping.py": 30,
    "system/recovery/test_sync.py": 50,
    "system/recovery/test_worker.py": 45,
    "system/runtime/test_tensorflow_import.py": 10,
    "system/storage/test_folder_lock.py": 35,
    "system/parts/selection/test_selection.py": 13,
    "system/tasks/test_run.py": 45,
    "system/parts/control/test_control.py": 30,
    "system/test_elastic.py": 45,
    "system/test_ends.py": 25,
    "system/test_faults.py": 65,
    "system/test_how_to.py": 60,
    "system/test_installed.py": 50,
    "system/test_isolation.py": 10,
    "system/test_main.py": 20,
    "system/test_run_local.py": 12,
    "system/test_signals.py": 25,
    "system/test_soak.py": 35,
    "system/test_user_faults.py": 40,
    "system/test_examples.py": 45,
    "system/test_tutorial.py": 70,
    "system/updates/test_tensorflow_engine.py": 70,
}
# What the servers and sessions of a file add to a process, in 10^6 bytes: the resident memory of a process that runs
# this file only, less the 560 of one that imports all and runs nothing.
_GROUP_MBYTES = 1700
_MBYTES = {
    "cluster/coordination/test_blackboard.py": 840,
    "cluster/parts/tables/test_modes.py": 800,
    "cluster/graph/test_nan_guard.py": 220,
    "cluster/graph/test_packing.py": 500,
    "cluster/graph/test_transfer.py": 390,
    "cluster/parts/profile/test_part.py": 590,
    "cluster/storage/test_saver.py": 180,
    "cluster/tasks/test_evaluator.py": 190,
    "cluster/tasks/test_ps.py": 230,
    "cluster/test_testing.py": 530,
    "cluster/training/test_fingerprint.py": 270,
    "cluster/training/test_loop.py": 320,
    "cluster/training/test_recovery.py": 790,
    "cluster/updates/test_local_steps.py": 630,
    "cluster/updates/sync/test_aggregation.py": 250,
    "cluster/parts/legacy/test_standalone.py": 200,
    "cluster/parts/legacy/test_sync_replicas.py": 200,
    "cluster/updates/sync/test_tensorflow_engine.py": 470,
    "cluster/updates/test_build.py": 400,
    "cluster/updates/test_chief.py": 700,
    "cluster/updates/test_staleness.py": 480,
    "cluster/updates/test_unrolled.py": 640,
}


def groups(names: list[str]) -> list[list[str]]:
    """Returns the files in groups within both limits, a file beyond one of them alone, with the longest group first."""
    found: list[list[str]] = []
    for name in sorted(names, key=lambda name: (-_seconds(name), name)):
        for group in found:
            together = [*group, name]
            mbytes = sum(_MBYTES.get(one, 0) for one in together)
            if _total_seconds(together) <= _GROUP_SECS[name.partition("/")[0]] and mbytes <= _GROUP_MBYTES:
                group.append(name)
                break
        else:
            found.append([name])
    return sorted(found, key=_total_seconds, reverse=True)


def _total_seconds(names: list[str]) -> float:
    return sum(map(_seconds, names))


def _seconds(name: str) -> float:
    return _SECS.get(name, _SHORT_SECS[name.partition("/")[0]])


def _is_keras(path: pathlib.Path) -> bool:
    return "keras" in path.parts and path.parts[0] != "unit"  # pure tests have no mode


def _main(folders: list[str]) -> None:
    tests = pathlib.Path("tests")
    planned = []
    for folder in folders:
        paths = [path.relative_to(tests) for path in sorted(pathlib.Path(folder).rglob("test_*.py"))]
        for is_keras in (False, True):  # Keras runs in TensorFlow's other mode, which is that of a whole process
            names = [path.as_posix() for path in paths if _is_keras(path) == is_keras]
            planned.append(groups(names))
    longest = max(map(len, planned), default=0)
    for number in range(longest):  # folder by folder in turn: one computes while the other waits
        for group in (groups_of[number] for groups_of in planned if number < len(groups_of)):
            print(*(f"tests/{path}" for path in group))


if __name__ == "__main__":
    _main(sys.argv[1:])
