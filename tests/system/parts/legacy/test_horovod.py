"""Unchanged Horovod scripts: the updates are Horovod's, every process ends, and a lost task is survived."""

from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest

from tests.system.parts.legacy.scripts import SCRIPTS, ScriptCluster

SCRIPT = "horovod_script.py"
KERAS_SCRIPT = pathlib.Path(__file__).with_name("horovod_keras.py")
NUM_STEPS = 20


def last_losses(group):
    """Returns what the two ranks printed at their end: loss and mean."""
    return [re.search(rf"rank {rank} of 2 \({rank} of 2 here\) ends: loss (\S+), mean of ranks (\S+)",
                      group.log(f"worker-{rank}")).groups() for rank in range(2)]


def loss_before_last_update(rank):
    """Returns the loss of a rank in the last step, as Horovod's updates make it.

    The learning rate is 0.02. The mean gradient of each of the two weights w is 2 (w - 0.5), that of the row of all
    ranks 1, and that of a row of one rank 0.5: it is divided by the number of all ranks.
    """
    num_updates = NUM_STEPS - 1
    weight = 0.5 + 0.5 * (1 - 0.02 * 2) ** num_updates
    return 2 * (weight - rank) ** 2 - 0.02 * num_updates * (1 + 0.5)


def test_a_script_with_a_plain_session_makes_the_updates_of_horovod(start_process):
    """Each rank initialises the variables, but there is one copy; the values of all ranks are averaged."""
    cluster = ScriptCluster(start_process, SCRIPT, ["--plain", f"--train_steps={NUM_STEPS}"])
    cluster.assert_ends_well()
    for rank, (loss, mean) in enumerate(last_losses(start_process)):
        assert abs(float(loss) - loss_before_last_update(rank)) < 1e-4
        assert float(mean) == 0.5


def test_a_rank_that_reads_the_parameters_before_the_broadcast_waits_for_rank_0(start_process, tmp_path):
    """Issue: it ended with 138, a lost session, unless rank 0 had come first; in Horovod it has values of its own."""
    script = pathlib.Path(__file__).with_name("horovod_early.py")
    ScriptCluster(start_process, str(script), [str(tmp_path / "begun")]).assert_ends_well()
    for rank in range(2):
        assert f"rank {rank} begins with the weight 1.0" in start_process.log(f"worker-{rank}")


def test_an_estimator_trains_parameters_of_all_ranks(start_process, tmp_path):
    """They are on the ps, though `Estimator.train` leaves all scopes of devices; a second training continues."""
    script = pathlib.Path(__file__).with_name("horovod_estimator.py")
    cluster = ScriptCluster(start_process, str(script), [f"--model_dir={tmp_path}"])
    cluster.assert_ends_well()
    found = re.findall(r"rank 0, round (\d): step (\d+), weight (\S+)", start_process.log("worker-0"))
    (_, first_step, weight), (_, second_step, _) = found
    assert int(first_step) == 10 and abs(float(weight) - (0.5 + 0.5 * (1 - 0.02 * 2) ** 10)) < 1e-5
    assert int(second_step) >= 20  # the ranks begin their second training at different times
    assert "rank 1, round 1" in start_process.log("worker-1")


def test_a_graph_may_have_several_training_steps_with_rates_that_are_fed(start_process):
    """Issue: the second DistributedOptimizer was refused, and the update failed for want of the rate."""
    script = pathlib.Path(__file__).with_name("horovod_gan.py")
    cluster = ScriptCluster(start_process, str(script), [])
    cluster.assert_ends_well()
    weight, critic = 1.0, 0.0
    for rate in (0.05, 0.1, 0.2):
        critic -= 2 * rate * 2 * (critic + weight - 0.5)
        weight -= rate * 2 * (weight - 0.5)
    for rank in range(2):
        assert f"rank {rank} ends: weight {weight:.6f}, critic {critic:.6f} {critic:.6f}, step 3" in (
            start_process.log(f"worker-{rank}"))


@pytest.mark.parametrize("arguments", [[], ["--early"]])
def test_ranks_with_variables_of_their_own_reduce_more_gradients_than_there_are_threads(start_process, arguments):
    """Issue: they waited for ever, rank 1 for rank 0 to initialise the variables, and both for different gradients.

    With a session that was opened before the model was built, the variables were on the ps, and had no value.
    """
    script = pathlib.Path(__file__).with_name("horovod_reduced.py")
    ScriptCluster(start_process, str(script), arguments).assert_ends_well()
    for rank in range(2):
        found = re.findall(rf"rank {rank}: step (\d), (\S+) to (\S+)", start_process.log(f"worker-{rank}"))
        assert [int(step) for step, _, _ in found][-1] in (4, 5) and len(found) == 5
        for number, (_, lowest, highest) in enumerate(found):
            # The weights begin with those of rank 0; they may be read before or after the update of their own step.
            values = [0.5 - 0.5 * (1 - 0.1 * 2) ** count for count in (number, number + 1)]
            assert values[0] - 1e-5 < float(lowest) <= float(highest) < values[1] + 1e-5


class KerasOracle:
    """The training of horovod_keras.py in one process: its gradients are means over both ranks' batches."""

    batch, num_rows = 4, 7

    def __init__(self):
        """Begins with the weights of rank 0."""
        self.weights = [np.zeros([self.num_rows, 2]), np.ones([2, 1])]
        self._momenta = [np.zeros_like(weight) for weight in self.weights]
        self._data = []
        for rank in range(2):
            random = np.random.RandomState(rank)
            self._data.append((random.randint(self.num_rows, size=[12, 1])[:, 0], random.normal(size=[12, 2]),
                               random.normal(size=[12, 1])))

    def step(self, number, rate, momentum):
        """Takes a step of Keras's SGD, which leaves rows without a gradient alone; returns each rank's loss."""
        table, kernel = self.weights
        gradients, losses, touched = [np.zeros_like(weight) for weight in self.weights], [], set()
        for rank in range(2):
            ids, values, targets = (each[number * self.batch:(number + 1) * self.batch] for each in self._data[rank])
            inputs = table[ids] + values
            errors = inputs @ kernel - targets
            losses.append(np.mean(errors ** 2))
            scaled = errors * 2 / self.batch / 2  # the mean over the batch, and over the ranks
            np.add.at(gradients[0], ids, scaled @ kernel.T)
            gradients[1] += inputs.T @ scaled
            touched.update(ids)
        for place, rows in enumerate([sorted(touched), [0, 1]]):
            self._momenta[place][rows] = momentum * self._momenta[place][rows] - rate * gradients[place][rows]
            self.weights[place][rows] += self._momenta[place][rows]
        return losses

    @property
    def flat(self):
        """All weights, one after the other."""
        return np.concatenate([weight.ravel() for weight in self.weights])


def test_a_keras_script_trains_as_with_horovod(start_process, tmp_path):
    """Each rank has its own variables: the same ones, from the broadcast on.

    A file that only rank 0 loads gives all ranks the state of the optimizer, too, whose variables it names otherwise.
    Issue: in the second model after `K.clear_session()` were the weights of the first, as servers know them by name.
    """
    ScriptCluster(start_process, str(KERAS_SCRIPT), [f"--folder={tmp_path}"]).assert_ends_well()
    # The rate grows from 0.1 to 0.2 in three steps, and is halved then; the momentum follows each change at once.
    rates = [0.2 * (1 + step / 3) / 2 for step in (1, 2, 3)] + [0.1] * 3
    momenta = [0.9 * rate / before for rate, before in zip(rates, [0.2, *rates])]
    oracle = KerasOracle()
    losses = np.array([oracle.step(number % 3, rate, momentum)
                       for number, (rate, momentum) in enumerate(zip(rates, momenta))]).reshape([2, 3, 2]).mean(1)
    trained = oracle.flat
    oracle.step(0, rates[-1], 0.9)
    for rank in range(2):
        log = start_process.log(f"worker-{rank}")
        assert "finished gradual learning rate warmup to 0.2" in log
        expected = {"values": [0.5, 3, 0, 5, 1, 5, 7], "loaded weights": oracle.flat, "broadcast weights": trained}
        for fit in ("fit", "generator"):
            expected |= {f"{fit} rates": np.transpose([rates, momenta]).ravel(), f"{fit} weights": trained,
                         f"{fit} losses": [*losses[:, rank], *losses.mean(1), 0.2, 0.1]}
        for name, numbers in expected.items():
            found = [float(word) for word in re.search(rf"rank {rank} {name}: (.*)", log)[1].split()]
            np.testing.assert_allclose(found, numbers, atol=2e-5, err_msg=name)


def test_a_chief_whose_variables_have_no_value_says_so_at_once(start_process, tmp_path):
    """Issue: it waited five minutes for itself."""
    script = tmp_path / "early.py"
    script.write_text(
        "import horovod.tensorflow as hvd\nimport tensorflow as tf\nhvd.init()\nweight = tf.get_variable('w', [1])\n"
        "init = tf.global_variables_initializer()\n"
        "train = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(0.1, 0.9)).minimize(tf.reduce_sum(weight))\n"
        "with tf.Session() as sess:\n    sess.run(init)\n    sess.run(train)\n")
    ScriptCluster(start_process, str(script), [])
    start_process.wait_for_line("worker-0", "variables_uninitialized")
    codes = start_process.wait()
    assert codes["worker-0"] == 2 and codes["ps-0"] == 138
    assert "horovod_step, w/Momentum have no value" in start_process.log("worker-0")


def start_at_gate(group, folder, num_steps):
    """Starts a training, and returns it and its arguments when both ranks wait at their first gate."""
    arguments = [f"--model_dir={folder}/train", f"--train_steps={num_steps}"]
    cluster = ScriptCluster(group, SCRIPT, [*arguments, f"--gate={folder}/gate"])
    for rank in range(2):
        group.wait_for_line(f"worker-{rank}", f"rank {rank} is at gate 10")
    return cluster, arguments


def assert_trained(folder, num_steps):
    """The last checkpoint has all steps."""
    from tests import clusters  # noqa: PLC0415 (it imports TensorFlow, which the processes need and this one does not)

    assert clusters.read_checkpoint(folder / "train")["global_step"] >= num_steps


def test_the_others_train_on_without_a_killed_worker_which_may_come_back(start_process, tmp_path):
    """Horovod ends all ranks then."""
    cluster, arguments = start_at_gate(start_process, tmp_path, 60)
    start_process.kill("worker-1")
    (tmp_path / "gate10").touch()
    start_process.wait_for_line("worker-0", "dead or never started: worker:1")
    start_process.wait_for_line("worker-0", "rank 0 is at gate 20")
    cluster.start("worker", 1, name="worker-1-again", arguments=arguments)
    start_process.wait_for_line("worker-1-again", "has joined")
    (tmp_path / "gate20").touch()
    cluster.assert_ends_well(killed=("worker-1",))
    assert_trained(tmp_path, 60)


def test_a_killed_chief_that_comes_back_does_not_initialise_the_parameters_again(start_process, tmp_path):
    """The step never goes back, though the script of rank 0 restores the last checkpoint."""
    cluster, arguments = start_at_gate(start_process, tmp_path, 60)
    start_process.kill("worker-0")
    for step in (10, 20):
        (tmp_path / f"gate{step}").touch()
    cluster.start("worker", 0, name="worker-0-again", arguments=arguments)
    cluster.assert_ends_well(killed=("worker-0",))
    steps = [int(line.rpartition(" ")[2]) for line in start_process.log("worker-1").splitlines() if "at step" in line]
    assert steps == sorted(set(steps)) and steps[-1] >= 50
    assert_trained(tmp_path, 60)


def test_after_the_death_of_the_ps_a_monitored_session_continues_from_the_checkpoint(start_process, tmp_path):
    """In the same processes; the chief saves every second."""
    cluster, _ = start_at_gate(start_process, tmp_path, 60)
    start_process.kill("ps-0")
    cluster.start("ps", 0, name="ps-0-again")
    for step in (10, 20):
        (tmp_path / f"gate{step}").touch()
    cluster.assert_ends_well(killed=("ps-0",))
    assert_trained(tmp_path, 60)


def test_a_script_without_a_cluster_is_rank_0_of_1_and_what_has_no_stand_in_is_one_line(start_process, tmp_path):
    """`ps_train run` alone, without TF_CONFIG."""
    start_process.start("alone", ["run", str(SCRIPTS / SCRIPT), "--plain", "--train_steps=2"])
    torch, eager = tmp_path / "torch_script.py", tmp_path / "eager.py"
    torch.write_text("import tensorflow as tf\ntf.placeholder(tf.float32)\n"
                     "import horovod.tensorflow.functions\nfrom horovod.tensorflow.mpi_ops import broadcast, rank\n"
                     "horovod.tensorflow.init()\nassert horovod.tensorflow.mpi_ops.rank is rank and rank() == 0\n"
                     "import horovod.torch as hvd\n")
    eager.write_text("import tensorflow as tf\nimport horovod.tensorflow.keras as hvd\ntf.GradientTape()\n")
    for script in (torch, eager):
        start_process.start(script.stem, ["run", str(script)])
    start_process.start("keras", ["run", str(KERAS_SCRIPT), f"--folder={tmp_path}"])
    assert start_process.wait() == {"alone": 0, "torch_script": 1, "eager": 1, "keras": 0}
    assert "rank 0 of 1 (0 of 1 here) ends: loss" in start_process.log("alone")
    for script, line, code in ((torch, 7, "horovod_name_missing"), (eager, 2, "horovod_tensorflow_2")):
        last_line = start_process.log(script.stem).splitlines()[-1]
        assert last_line.endswith(f"[{code}]") and f"{script}:{line}" in last_line
