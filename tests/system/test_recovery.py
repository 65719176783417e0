"""Every role may die at any moment: real processes, killed while training is held at a gate.

Each worker trains so many mini-batches, then waits in its input until its gate is opened; faults happen meanwhile.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import signal
import threading

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.coordination import blackboard
from ps_train.coordination.state import State
from ps_train.runtime import waits
from tests import clusters
from tests.processes import DEADLINE_SECS, REPO, TaskCluster
from tests.training import GATE_BATCH, MODES, TRAIN_STEPS


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_worker_that_dies_does_not_stop_the_others(train, mode):
    """Matrix rows 5, 6, 7 and 48: the chief trains to the end, and does not wait for the dead one."""
    training = train(flags=mode)
    training.wait_for_gates()
    training.kill("worker-1")
    training.open_gates()
    training.assert_ends_well(killed=["worker-1"])
    assert ("gradients per update from now on: 1; dead, or did not come: worker:1"
            in training.group.log("worker-0")) == bool(mode)


@pytest.mark.parametrize("replicas", [2, 5], ids=["backup", "several batches each"])
def test_in_sync_the_others_go_on_with_any_number_of_gradients(train, replicas):
    """Matrix row 6: with backup workers the number stays, with several batches each those of the living are left."""
    training = train(1, 3, flags=["--sync_replicas", f"--replicas_to_aggregate={replicas}"])
    training.group.wait_for_line("worker-0", "examples/s")  # its gate it may not reach: the two others suffice for all
    training.kill("worker-2")
    training.open_gates()
    training.assert_ends_well(killed=["worker-2"])
    log = training.group.log("worker-0")
    assert ("gradients per update from now on: 4; dead, or did not come: worker:2" in log) == (replicas == 5)
    assert "gradients came too late for their update and were dropped" in log


def test_a_restarted_worker_rejoins(train):
    """Matrix row 8: it takes steps again, from the global step that the others have reached."""
    training = train()
    training.wait_for_gates()
    training.kill("worker-1")
    training.start("worker", 1, "worker-1-again")
    training.wait_for_gates("worker-1-again")
    training.open_gates()
    training.assert_ends_well(killed=["worker-1"])
    first_line = re.search(r"step (\d+) of", training.group.log("worker-1-again"))
    assert int(first_line[1]) > GATE_BATCH


def test_a_frozen_worker_is_trained_without_and_rejoins_when_it_wakes(train):
    """What it pushes for a step that is over is dropped and counted, and the updates wait for it again."""
    training = train(1, 3, flags=["--sync_replicas"])
    training.wait_for_gates("worker-0")
    training.group.pause("worker-2")
    training.group.wait_for_line("worker-0", "gradients per update from now on: 2; dead, or did not come: worker:2")
    training.group.resume("worker-2")
    training.group.wait_for_line("worker-0", "gradients per update from now on: 3")
    training.open_gates()
    training.assert_ends_well()


def test_a_chief_that_dies_in_sync_while_a_worker_waits_lets_it_go_when_it_returns(train):
    """The gradients that were on their way are stale, and both train on together."""
    training = train(flags=["--sync_replicas"])
    training.wait_for_gates("worker-0")
    pathlib.Path(f"{training.folder}/gate.1").touch()  # worker 1 goes on, pushes, and waits
    training.kill("worker-0")
    training.start("worker", 0, "worker-0-again")
    training.open_gates()
    training.assert_ends_well(killed=["worker-0"])


def test_below_the_floor_training_waits_for_the_worker_and_then_goes_on(train):
    """Matrix rows 7 and 8 in sync: with both gradients required, training needs the dead one, which rejoins."""
    training = train(flags=["--sync_replicas", "--min_replicas_to_aggregate=2"])
    training.wait_for_gates()
    training.kill("worker-1")
    training.open_gates()
    training.group.wait_for_line("worker-0", "gradients per update from now on: 2; dead, or did not come: worker:1")
    training.start("worker", 1, "worker-1-again")
    training.assert_ends_well(killed=["worker-1"])
    assert int(re.search(r"step (\d+) of", training.group.log("worker-1-again"))[1]) > 10


def test_below_the_floor_for_too_long_ends_the_chief_with_138(train):
    """The error names who is missing, and its address."""
    training = train(flags=["--sync_replicas", "--min_replicas_to_aggregate=2"], start_timeout_secs=15)
    training.wait_for_gates()
    training.kill("worker-1")
    training.open_gates()
    assert training.group.exit_code("worker-0") == 138
    assert re.search(rf"waited \d+ s for worker:1 {training.cluster.workers[1]}: an update needs 2 gradients",
                     training.group.log("worker-0"))


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_restarted_chief_continues_on_the_live_parameters(train, mode):
    """Matrix row 10: it neither restores nor initialises, and saves at the end."""
    training = train(flags=mode)
    training.wait_for_gates()
    training.kill("worker-0")
    training.start("worker", 0, "worker-0-again")
    if not mode:  # in sync it needs the other worker for a step
        training.wait_for_gates("worker-0-again")
    training.open_gates()
    training.assert_ends_well(killed=["worker-0"])
    log = training.group.log("worker-0-again")
    assert "starting from" not in log and "continuing from" not in log and "restoring" not in log
    assert int(re.search(r"step (\d+) of", log)[1]) > 10


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("dead", [0, 1])
def test_after_the_death_of_a_ps_all_continue_from_one_checkpoint(train, dead, mode):
    """Matrix rows 12 and 13: the chief restores both ps from the same checkpoint, and says so once."""
    training = train(flags=["--save_model_secs=1", *mode])
    training.group.wait_for_line("worker-0", "examples/s")
    training.wait_for_gates()
    training.kill(f"ps-{dead}")
    training.start("ps", dead, f"ps-{dead}-again")
    training.open_gates()
    training.assert_ends_well(killed=[f"ps-{dead}"])
    log = training.group.log("worker-0")
    assert len(re.findall(r"a ps has lost its parameters at about step \d+: restoring all ps from", log)) == 1, log
    assert "Traceback" not in log + training.group.log("worker-1")


@pytest.mark.parametrize("name", ["worker-0", "ps-1"])
def test_what_is_packed_is_not_lost(train, name):
    """With many small variables, whose values are in a packed one: after a new chief, and after the loss of a ps.

    A step takes a tenth of the error. So after those up to the gate the loss is below 0.1, where it began with 14; had
    it begun anew, it would be above 1 when ten more steps are taken, and told.
    """
    training = train(params=",num_parts=40",
                     flags=["--save_model_secs=1", "--optimizer=sgd", "--learning_rate=0.00125"])
    training.wait_for_gates()
    training.group.wait_for_line("worker-0", f"model.ckpt-{2 * GATE_BATCH}")
    training.kill(name)
    job, _, index = name.partition("-")
    training.start(job, int(index), f"{name}-again")
    if name == "worker-0":
        training.wait_for_gates("worker-0-again")
    training.open_gates()
    training.assert_ends_well(killed=[name])
    assert "Traceback" not in training.group.logs()
    log = training.group.log("worker-0-again") if name == "worker-0" else training.group.log("worker-0").partition(
        "restoring all ps from")[2]
    losses = [float(loss) for loss in re.findall(r"loss ([\d.e+-]+)", log)]
    assert losses and losses[0] < 0.1, losses


def test_a_ps_that_dies_before_the_first_checkpoint_is_told_loudly(train):
    """Matrix row 14: training starts again from new parameters."""
    training = train(flags=["--save_model_secs=0"])
    training.wait_for_gates()
    training.kill("ps-1")
    training.start("ps", 1, "ps-1-again")
    training.open_gates()
    training.assert_ends_well(killed=["ps-1"])
    assert "NO CHECKPOINT was saved before: STARTING AGAIN" in training.group.log("worker-0")


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_frozen_ps_is_noticed_and_training_goes_on_when_it_wakes(train, mode):
    """Matrix row 15: the step times out, and the same processes train on."""
    training = train(flags=["--step_timeout_secs=2", *mode], train_steps=2000)
    training.open_gates()
    training.wait_for_gates()
    training.group.signal("ps-1", signal.SIGSTOP)
    training.group.wait_for_line("worker-0", "lost the session")
    training.group.signal("ps-1", signal.SIGCONT)
    training.assert_ends_well()


def test_a_ps_that_stays_frozen_ends_the_workers_with_138(train):
    """Matrix row 16: within the step and the start time-out, naming whom they waited for."""
    training = train(flags=["--step_timeout_secs=1"], start_timeout_secs=8, train_steps=10**6)
    training.open_gates()
    training.wait_for_gates()
    training.group.signal("ps-1", signal.SIGSTOP)
    codes = [training.group.exit_code(f"worker-{index}") for index in range(2)]
    assert codes == [138, 138]
    assert re.search(rf"waited 8 s for .*ps:1 {training.cluster.ps[1]}", training.group.log("worker-0"))


def test_a_second_chief_is_refused(train):
    """Matrix rows 44 and 46: it exits 2, before it touches anything; the first one trains on.

    Its folder is another one, as where two machines share none; else it would be refused for that already.
    """
    training = train(1, 1)
    training.wait_for_gates()
    elsewhere = TaskCluster(0, 1)
    flags = [f"--ps_hosts={training.cluster.ps[0]}", f"--worker_hosts={elsewhere.workers[0]}", "--job_name=worker",
             "--task_index=0", *training.flags]
    flags = [f"--train_dir={training.folder}/second" if flag.startswith("--train_dir") else flag for flag in flags]
    training.group.start("second", flags, cwd=training.folder)
    assert training.group.exit_code("second") == 2
    assert "is running already" in training.group.log("second")
    training.open_gates()
    training.assert_ends_well(killed=["second"])


def test_a_ps_ends_when_all_workers_have_died(train):
    """Matrix row 49: exit code 138 after the idle time-out."""
    training = train(1, 1, flags=["--idle_timeout_secs=12"])
    training.wait_for_gates()
    training.kill("worker-0")
    assert training.group.exit_code("ps-0", 60) == 138
    assert "no worker was there for 12 s" in training.group.log("ps-0")


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_chief_that_was_told_to_stop_continues_with_the_same_command(train, mode):
    """SIGTERM to the chief only, 143; the other worker goes on or waits, and both end well after its return."""
    training = train(flags=["--stop_timeout_secs=4", *mode])
    training.wait_for_gates()
    training.group.signal("worker-0", signal.SIGTERM)
    assert training.group.exit_code("worker-0", 20) == 143
    training.start("worker", 0, "worker-0-again")
    training.open_gates()
    training.assert_ends_well(killed=["worker-0"])


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_sigterm_to_all_saves_and_ends_within_the_grace_period(train, mode):
    """Matrix row 23: all four are told at once, and the chief still saves on the ps."""
    training = train(flags=["--save_model_secs=0", *mode], train_steps=10**6)
    training.open_gates()
    training.wait_for_gates()
    for name in ("ps-0", "ps-1", "worker-0", "worker-1"):
        training.group.signal(name, signal.SIGTERM)
    assert set(training.group.wait(25).values()) == {143}
    assert clusters.read_checkpoint(training.train_dir)["global_step"] >= 10


@pytest.mark.parametrize("name", ["worker-0", "worker-1"])
def test_sigterm_is_heard_while_a_step_is_blocked(train, name):
    """The worker hangs in its input; it ends with 143 after the grace period."""
    training = train(1, 2, flags=["--stop_timeout_secs=2"])
    training.wait_for_gates()
    training.group.signal(name, signal.SIGTERM)
    assert training.group.exit_code(name, 20) == 143


def test_sigterm_is_heard_while_a_worker_waits_for_a_ps(tmp_path, start_process):
    """Matrix row 25: nobody is there; it ends at once."""
    cluster = TaskCluster(1, 1)
    shutil.copy(REPO / "tests/plugins/tiny.py", tmp_path)
    start_process.start("worker", [*cluster.flags("worker", 0), "--model=tiny", "--dataset=tiny",
                                   f"--train_dir={tmp_path}/train"], cwd=tmp_path)
    start_process.wait_for_line("worker", "serves at")
    start_process.signal("worker", signal.SIGTERM)
    assert start_process.exit_code("worker", 3) == 143


def test_a_worker_that_never_comes_is_told_once_and_not_needed(train):
    """Matrix row 2: the others train to the end; the chief waits for it a while, and says so."""
    training = train(1, 3, flags=["--end_timeout_secs=3"], absent=["worker-2"])
    training.open_gates()
    training.assert_ends_well()
    log = training.group.log("worker-0")
    assert log.count("worker:2") == 1, log
    assert f"ending without worker:2 {training.cluster.workers[2]}: not finished" in log


def test_a_chief_that_starts_last_is_waited_for(train):
    """Matrix row 4: the others say for whom they wait, and then train."""
    training = train(absent=["worker-0"])
    training.group.wait_for_line("worker-1", f"waiting for worker:0 {training.cluster.workers[0]} (chief) to prepare")
    training.start("worker", 0)
    training.wait_for_gates()
    training.open_gates()
    training.assert_ends_well()


def test_a_restart_storm_leaves_a_ps_as_it_was(train):
    """Matrix row 9: a worker dies and comes back five times; neither threads nor memory of the ps add up."""
    training = train(1, 2)
    training.wait_for_gates()
    name, names, grown = "worker-1", [], []
    for number in range(5):
        training.kill(name)
        names.append(name)
        name = f"worker-1-again-{number}"
        training.start("worker", 1, name)
        training.wait_for_gates(name)
        grown.append((training.group.status("ps-0", "Threads"), training.group.status("ps-0", "VmRSS")))
    training.open_gates()
    training.assert_ends_well(killed=names)
    (first_threads, first_kib), (last_threads, last_kib) = grown[0], grown[-1]
    assert last_threads <= first_threads + 8, grown  # gRPC makes and ends some as it likes
    assert last_kib <= first_kib + 32 * 1024, grown


def test_a_ps_that_dies_during_the_evaluation_is_not_needed_any_more(train):
    """Matrix row 50: everything is saved; the chief evaluates and ends with 0."""
    training = train(1, 2, holds_evaluation=True)
    training.open_gates()
    training.group.wait_for_line("worker-0", "training ended")
    assert training.group.exit_code("worker-1") == 0
    training.kill("ps-0")
    training.open_eval_gate()
    training.assert_ends_well(killed=["ps-0"])
    assert "After 40" in training.group.log("worker-0")


def test_a_worker_that_dies_after_the_last_step_keeps_nobody(train):
    """Matrix row 51: it cannot say any more that it has finished; all others end with 0."""
    training = train(1, 2)
    training.wait_for_gates()
    training.open_gates(0)
    wait_for_state(training, State.STOPPING)
    training.kill("worker-1")
    training.assert_ends_well(killed=["worker-1"])


def test_a_chief_that_dies_before_it_says_done_is_replaced(train):
    """Matrix row 51: it is killed in its evaluation; started again it takes no step, evaluates, and all end with 0."""
    training = train(2, 2, holds_evaluation=True)
    training.open_gates()
    training.group.wait_for_line("worker-0", "training ended")
    assert training.group.exit_code("worker-1") == 0
    training.kill("worker-0")
    training.open_eval_gate()
    training.start("worker", 0, "worker-0-again")
    training.assert_ends_well(killed=["worker-0"])
    log = training.group.log("worker-0-again")
    assert "nothing to train" in log and "After 40" in log


def test_a_chief_that_dies_before_it_says_done_and_stays_away_ends_the_ps(train):
    """Matrix row 51: each ps ends with 138 after its idle time-out; the last step is saved."""
    training = train(2, 1, flags=["--idle_timeout_secs=12"], holds_evaluation=True)
    training.open_gates()
    training.group.wait_for_line("worker-0", "training ended")
    training.kill("worker-0")
    assert [training.group.exit_code(f"ps-{index}") for index in range(2)] == [138, 138]
    assert clusters.read_checkpoint(training.train_dir)["global_step"] == TRAIN_STEPS


def wait_for_state(training, state):
    """Returns when the blackboard says that training is there."""
    view = Cluster("worker", 0, {"ps": dict(enumerate(training.cluster.ps)),
                                 "worker": dict(enumerate(training.cluster.workers))})
    with contextlib.closing(blackboard.for_client(view)) as board:
        waits.until(lambda: board.state() >= state, DEADLINE_SECS, state.name, threading.Event())


# The bound lets a worker come to its gate while the other one waits at its own.
ROUNDS = {"async": ["--staleness_bound=40"], "sync": ["--sync_replicas"]}


@pytest.mark.parametrize("mode", ROUNDS.values(), ids=ROUNDS)
@pytest.mark.parametrize("name", ["worker-1", "worker-0", "ps-1"])
def test_with_local_steps_every_role_may_die_in_the_midst_of_a_round(train, name, mode):
    """It is started again and all end with 0; in async under a bound of the staleness."""
    training = train(flags=["--communication_period=5", "--save_summaries_steps=0", "--save_model_secs=1",
                            *mode])
    training.wait_for_gates()
    training.kill(name)
    job, _, index = name.partition("-")
    training.start(job, int(index), f"{name}-again")
    training.open_gates()
    training.assert_ends_well(killed=[name])
    assert "Traceback" not in training.group.logs()
