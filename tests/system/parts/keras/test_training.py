"""`ps_train keras` in one process, as a user runs it; each run has a deadline."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import zipfile

import pytest

from tests import fork_server
from tests.processes import DEADLINE_SECS, REPO

pytest.importorskip("tf_keras", reason="Keras training needs the extra `keras`")

DIGITS = ["keras", "--dataset=data.digits", "--seed=1", "--save_summaries_steps=0"]


def run(group, name, *flags, exit_code=0, **options):
    """Runs to the end, and returns what was printed."""
    group.start(name, flags, **options)
    assert group.exit_code(name, 2 * DEADLINE_SECS) == exit_code, group.log(name)
    return group.log(name)


def tiny_training(folder, *flags):
    """Puts the plug-in keras_tiny there; returns the command line of its training in `folder/train`."""
    for plugin in ("tiny.py", "keras_tiny.py"):
        shutil.copy(REPO / "tests/plugins" / plugin, folder)
    return ["keras", "--model=keras_tiny", "--dataset=keras_tiny", "--batch_size=16", "--log_steps=10",
            "--save_summaries_steps=0", f"--train_dir={folder}/train", *flags]


def accuracy(output):
    """Returns the accuracy of the final report."""
    return float(re.search(r"^  accuracy = (\S+)$", output, re.MULTILINE)[1])


def assert_trained(output, strategy, replicas):
    """The output says where it computed, how large its batches were, and that it has learnt."""
    assert re.search(rf"{strategy}: {replicas} replicas?, batch size 100 per replica, {100 * replicas} in all", output)
    assert re.search(r"this process computes on /device:[CG]PU:0", output)
    assert "After 100 training steps, on 2000 held-out examples:" in output
    assert re.search(r"^  cross entropy = \S+ in sum, \S+ in the mean$", output, re.MULTILINE)
    assert re.search(r"^Training took \S+ s, \d+ examples per second over all workers$", output, re.MULTILINE)
    assert accuracy(output) > 0.93


@pytest.mark.parametrize(("strategy", "flag"), [
    ("mirrored", "--num_virtual_devices=2"), ("central_storage", "--devices=cpu:0,cpu:1")])
def test_a_strategy_of_one_process_trains(start_process, tmp_path, strategy, flag):
    """On two devices; for one see the checkpoints by steps."""
    output = run(start_process, strategy, *DIGITS, f"--strategy={strategy}", flag, "--train_steps=100",
                 "--learning_rate=0.01", f"--train_dir={tmp_path}/train")
    assert_trained(output, strategy, 2)


def test_a_second_run_continues_where_the_first_one_stopped(start_process, tmp_path):
    """From the newest checkpoint that can be read, with the learning rate of now; at the end there is nothing to do."""
    common = [*DIGITS, "--model=models.keras_cnn", "--steps_per_epoch=20", "--steps_per_execution=7",
              f"--train_dir={tmp_path}/train"]
    flags = [*common, "--params=filters=1,dense_units=8"]
    first = run(start_process, "first", *flags, "--train_steps=40")
    assert "After 40 training steps" in first
    newest = tmp_path / "train/ckpt-00000040.keras"
    newest.write_bytes(newest.read_bytes()[:1000])
    second = run(start_process, "second", *flags, "--train_steps=60", "--learning_rate=0.01")
    assert "ckpt-00000040.keras cannot be read" in second
    assert "restored " in second and "epochs 2 to 3 of 20 steps each: training ends at step 60" in second
    assert "After 60 training steps" in second
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == [
        "ckpt-00000020.keras", "ckpt-00000040.keras", "ckpt-00000060.keras", "training.json"]
    third = run(start_process, "third", *flags, "--train_steps=60")
    assert "nothing to train: the global step is 60, and --train_steps=60; give a larger one, or another" in third
    assert accuracy(third) == accuracy(second)
    other = run(start_process, "other", *common, "--train_steps=100", "--params=filters=2,dense_units=8", exit_code=2)
    assert "filters in --params is 2, but 1 in the folder" in other


def test_a_validation_set_that_repeats_trains_with_a_number_of_batches(start_process, tmp_path):
    """All three sets repeat, as in Keras' guide. Without --validation_steps one line, exit code 2."""
    (tmp_path / "guide.py").write_text(
        "import numpy as np\n"
        "import tensorflow as tf\n"
        "def input_fn(mode, params, shard):\n"
        "    features = np.random.default_rng(0).normal(size=(1000, 784)).astype(np.float32)\n"
        "    labels = (features[:, 0] > 0).astype(np.int32)\n"
        "    return tf.data.Dataset.from_tensor_slices((features, labels)).batch(params['batch_size']).repeat()\n")
    flags = ["keras", "--dataset=guide", "--train_steps=20", "--save_summaries_steps=0",
             f"--train_dir={tmp_path}/train"]
    output = run(start_process, "without", *flags, exit_code=2, cwd=tmp_path)
    assert output.splitlines()[-1].endswith("[eval_data_without_end]")
    output = run(start_process, "with", *flags, "--validation_steps=2", cwd=tmp_path)
    assert "val_loss" in output and "After 20 training steps, on 200 held-out examples:" in output


def test_checkpoints_by_steps_can_be_loaded_by_a_user(start_process, tmp_path):
    """With load_model, as Keras' guide does; a validation set of its own leaves the test set to the report.

    Of GPUs that are not there, one line says so.
    """
    output = run(start_process, "steps", *DIGITS, "--strategy=one_device", "--num_gpus=64", "--learning_rate=0.01",
                 "--save_model_steps=20", "--steps_per_epoch=50", "--train_steps=100", "--keep_checkpoint_max=4",
                 "--params=validation_size=2000", f"--train_dir={tmp_path}/train")
    assert_trained(output, "one_device", 1)
    assert "--num_gpus=64: TensorFlow finds" in output
    names = sorted(path.name for path in (tmp_path / "train").iterdir())
    assert names == [*(f"ckpt-{step:08d}.keras" for step in (50, 60, 80, 100)), "training.json"]
    (tmp_path / "loading.py").write_text(
        "import sys, tf_keras; model = tf_keras.models.load_model(sys.argv[1])\n"
        "print('loaded', int(model.optimizer.iterations), model.input_shape)\n")
    with open(tmp_path / "output", "wb") as output:
        fork_server.of_this_process().start(
            [str(tmp_path / "train" / names[1])], tmp_path, dict(os.environ), output.fileno(),
            script=str(tmp_path / "loading.py")).wait(DEADLINE_SECS)
    printed = (tmp_path / "output").read_text()
    assert "loaded 60 (None, 784)" in printed.splitlines(), printed


def test_after_a_kill_within_an_epoch_the_epochs_stay_the_same(start_process, tmp_path):
    """Training continues from the newest checkpoint that can be read, within the epoch; damaged ones are skipped."""
    flags = tiny_training(tmp_path, "--train_steps=100", "--steps_per_epoch=50", "--save_model_steps=10",
                          f"--params=gate={tmp_path}/gate,gate_batch=85")
    start_process.start("first", flags, cwd=tmp_path)
    start_process.wait_for_line("first", "step 80 of 100")
    start_process.kill("first")
    pathlib.Path(f"{tmp_path}/gate.0").touch()
    newest = max((tmp_path / "train").glob("ckpt-*.keras"))
    os.truncate(newest, newest.stat().st_size // 2)
    second = run(start_process, "second", *flags, cwd=tmp_path)
    assert f"checkpoint {newest} cannot be read" in second
    [restored] = re.findall(r"restored \S+/ckpt-0*(\d+)\.keras", second)
    assert int(restored) in (60, 70)
    assert "epochs 2 to 2 of 50 steps each: training ends at step 100" in second
    assert "After 100 training steps" in second


def test_training_data_that_end_are_an_error_and_the_steps_before_are_saved(start_process, tmp_path):
    """Model.fit would stop there with exit code 0, and call the epoch complete. Data that are just enough are no error.

    Two devices share the batches, and an execution has several steps: each device must find the same end.
    """
    def start(name, num_steps, exit_code):
        (tmp_path / name).mkdir()
        flags = tiny_training(tmp_path / name, "--params=repeat=false", "--strategy=mirrored",
                              "--num_virtual_devices=2", "--steps_per_execution=5", f"--train_steps={num_steps}")
        return run(start_process, name, *flags, exit_code=exit_code, cwd=tmp_path / name)

    output = start("short", 100, exit_code=1)
    assert output.splitlines()[-1].endswith("[training_data_ended]")
    assert "ended after step 20 of 100" in output.splitlines()[-1]
    assert (tmp_path / "short/train/ckpt-00000020.keras").exists()
    assert "After 20 training steps" in start("enough", 20, exit_code=0)


LINES_PLUGIN = """
import tf_keras

def build_model(params):
    numbers = tf_keras.Input([1], name="numbers")
    model = tf_keras.Model({"numbers": numbers}, tf_keras.layers.Dense(1)(numbers))
    model.compile("sgd", "mse")
    return model
"""


def lines_training(folder, train_lines, eval_lines, *flags):
    """Writes the plug-in and its CSV files; returns the command line of its training."""
    (folder / "lines.py").write_text(LINES_PLUGIN)
    (folder / "schema.json").write_text('{"label": "y", "numbers": ["x"]}')
    (folder / "train.csv").write_text("y,x\n" + train_lines)
    (folder / "eval.csv").write_text("y,x\n" + eval_lines)
    return ["keras", "--model=lines", "--dataset=data.csv_files", f"--data_dir={folder}",
            f"--train_dir={folder}/train", *flags]


def test_a_malformed_line_is_named(start_process, tmp_path):
    """As in graph mode; input_fn was blamed."""
    flags = lines_training(tmp_path, "1,0.5\n" * 4000 + "1,half\n" + "1,0.5\n" * 4000, "1,0.5\n" * 100,
                           "--train_steps=1000")
    output = run(start_process, "one", *flags, exit_code=1, cwd=tmp_path)
    assert f"{tmp_path}/train.csv, line 4002 (byte 24004): column x: expected a number" in output.splitlines()[-1]
    assert "Traceback" not in output


def test_malformed_lines_that_are_left_out_are_counted(start_process, tmp_path):
    """Of training, and of the evaluation, whose lines are read twice: to count the batches, too."""
    flags = lines_training(tmp_path, "1,0.5\n" * 200 + "1,half\n" * 2, "1,0.5\n" * 100 + "1,half\n",
                           "--train_steps=20", "--batch_size=100", "--on_bad_record=skip")
    output = run(start_process, "one", *flags, cwd=tmp_path)
    assert re.search(r"training: skipped \d+ malformed lines \(--on_bad_record=skip\)", output)
    assert "evaluation: skipped 1 malformed line (--on_bad_record=skip)" in output
    assert output.count("skipped") == 2 and "on 100 held-out examples" in output


def test_a_module_whose_name_begins_with_keras_trains_to_its_report(start_process, tmp_path):
    """With a model, a loss and a metric that only it has; its callbacks are called, and may end training.

    Issue: ModelCheckpoint failed for such a class after the first epoch, and wrote HDF5 into the .keras of others.
    """
    shutil.copy(REPO / "tests/plugins/keras_own.py", tmp_path)
    flags = [*DIGITS, "--model=keras_own", f"--params=record={tmp_path}/record", "--steps_per_epoch=20",
             f"--train_dir={tmp_path}/train"]
    output = run(start_process, "own", *flags, "--train_steps=80", cwd=tmp_path)
    assert "After 40 training steps, on 2000 held-out examples:" in output
    assert re.search(r"^  own loss = ", output, re.MULTILINE) and re.search(r"^  hits = 0\.", output, re.MULTILINE)
    assert (tmp_path / "record").read_text() == "".join(
        f"{epoch} ['hits', 'loss', 'val_hits', 'val_loss']\n" for epoch in (0, 1))
    assert zipfile.is_zipfile(tmp_path / "record.keras")
    assert "restored " in run(start_process, "again", *flags, "--train_steps=80", cwd=tmp_path)


def test_the_weights_that_callbacks_leave_are_reported(start_process, tmp_path):
    """Set when the last epoch is saved already. One metric has several values, which Keras' TensorBoard refuses.

    The curves by step continue with the training, where Keras would draw them over the first ones.
    """
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    shutil.copy(REPO / "tests/plugins/keras_best.py", tmp_path)
    flags = ["keras", "--dataset=data.digits", "--model=keras_best", "--save_summaries_steps=10",
             f"--train_dir={tmp_path}/train"]
    for num_steps in (40, 60):
        output = run(start_process, f"to-{num_steps}", *flags, f"--train_steps={num_steps}", cwd=tmp_path)
        assert "2.3025" in output  # in the mean; ten classes, all as probable: log 10
        assert "both_0 = 1.0000" in output and "both_1 = 2.0000" in output
    events = accumulators.EventAccumulator(str(tmp_path / "train/train"))
    events.Reload()
    assert [event.step for event in events.Tensors("batch_both_1")] == [10, 20, 30, 40, 50, 60]
    assert len(events.Tensors("epoch_both_0")) == 2


def test_a_model_that_would_be_read_without_its_optimizer_is_refused(start_process, tmp_path):
    """Keras compiles a model that it reads only if its class does not compile in its own way."""
    (tmp_path / "own.py").write_text(
        "import tf_keras\n"
        "class Own(tf_keras.Sequential):\n"
        "    def compile(self, rate):\n"
        "        super().compile(tf_keras.optimizers.SGD(rate), 'mse')\n"
        "def build_model(params):\n"
        "    model = Own([tf_keras.layers.Input((784,)), tf_keras.layers.Dense(1)])\n"
        "    model.compile(params['learning_rate'])\n"
        "    return model\n")
    output = run(start_process, "own", *DIGITS, "--model=own", f"--train_dir={tmp_path}/train", exit_code=1,
                 cwd=tmp_path)
    assert output.splitlines()[-1].endswith("[model_not_compiled]") and "epochs" not in output


def test_a_checkpoint_that_could_not_be_read_is_refused_before_training(start_process, tmp_path):
    """A layer of another module, which is not registered: exit code 1, and no step was trained for nothing."""
    (tmp_path / "keras_parts.py").write_text("import tf_keras\nclass Same(tf_keras.layers.Layer):\n    pass\n")
    (tmp_path / "parts.py").write_text(
        "import keras_parts\nimport tf_keras\n"
        "def build_model(params):\n"
        "    layers = tf_keras.layers\n"
        "    model = tf_keras.Sequential([layers.Input((784,)), keras_parts.Same(), layers.Dense(10)])\n"
        "    model.compile('adam', tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))\n"
        "    return model\n")
    output = run(start_process, "parts", *DIGITS, "--model=parts", f"--train_dir={tmp_path}/train", exit_code=1,
                 cwd=tmp_path)
    assert output.splitlines()[-1].endswith("[unregistered_keras_object]") and "epochs" not in output


def test_sigterm_saves_within_an_epoch_and_the_same_command_continues(start_process, tmp_path):
    """Exit code 143 at the current step; the second run completes that epoch, then takes the whole one after it."""
    flags = tiny_training(tmp_path, "--train_steps=150", "--steps_per_epoch=50",
                          f"--params=gate={tmp_path}/gate,gate_batch=70")
    start_process.start("first", flags, cwd=tmp_path)
    start_process.wait_for_line("first", "step 60 of 150")
    start_process.signal("first", signal.SIGTERM)
    start_process.wait_until_heard("first")  # else it may train on until it hears of it
    pathlib.Path(f"{tmp_path}/gate.0").touch()
    assert start_process.exit_code("first") == 143
    stopped = max((tmp_path / "train").glob("ckpt-*.keras"))
    step = int(stopped.stem.partition("-")[2])
    assert 60 <= step <= 71
    second = run(start_process, "second", *flags, cwd=tmp_path)
    assert f"restored {stopped}" in second
    assert "After 150 training steps, on 640 held-out examples:" in second


def test_the_model_of_the_readme_trains(start_process, tmp_path):
    """Written as it stands there, outside the repository, without any strategy."""
    [block] = [block for block in re.findall(r"```python\n(.*?)```", (REPO / "docs/plugins.md").read_text(), re.DOTALL)
               if "build_model" in block]
    (tmp_path / re.match(r"# (\w+\.py)", block)[1]).write_text(block)
    output = run(start_process, "mine", *DIGITS, "--model=mykeras", "--train_steps=150", "--learning_rate=0.01",
                 f"--train_dir={tmp_path}/train", cwd=tmp_path)
    assert accuracy(output) > 0.8
