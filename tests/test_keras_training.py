"""`ps_train keras` in one process, as a user runs it; each run has a deadline."""

from __future__ import annotations

import pathlib
import re
import shutil
import signal

import pytest

from tests.processes import REPO

pytest.importorskip("tf_keras", reason="the Keras road needs the extra `keras`")

DIGITS = ["keras", "--dataset=data.digits", "--seed=1", "--save_summaries_steps=0"]


def run(group, name, *flags, exit_code=0, **options):
    """Runs to the end, and returns what was printed."""
    group.start(name, flags, **options)
    assert group.exit_code(name) == exit_code, group.log(name)
    return group.log(name)


def accuracy(output):
    """Returns the accuracy of the final report."""
    return float(re.search(r"^  accuracy = (\S+)$", output, re.MULTILINE)[1])


@pytest.mark.parametrize(("strategy", "flags", "replicas", "batch_size"), [
    ("one_device", [], 1, 100),
    ("mirrored", ["--num_virtual_devices=2"], 2, 200),
    ("central_storage", ["--num_virtual_devices=2"], 2, 200),
])
def test_a_strategy_of_one_process_trains(start_process, tmp_path, strategy, flags, replicas, batch_size):
    """It says how large its batches are, learns, and reports as the graph road does."""
    output = run(start_process, strategy, *DIGITS, f"--strategy={strategy}", *flags, "--train_steps=300",
                 f"--train_dir={tmp_path}/train")
    assert re.search(rf"{strategy}: {replicas} replicas?; batch size 100 per replica, {batch_size} in all", output)
    assert "After 300 training steps, on 2000 held-out examples:" in output
    assert re.search(r"^  cross entropy = \S+ in sum, \S+ in the mean$", output, re.MULTILINE)
    assert re.search(r"^Training took \S+ s, \d+ examples per second over all workers$", output, re.MULTILINE)
    assert accuracy(output) > 0.93


def test_a_second_run_continues_where_the_first_one_stopped(start_process, tmp_path):
    """From the newest checkpoint that can be read, with the learning rate of now; at the end there is nothing to do."""
    common = [*DIGITS, "--model=models.keras_cnn", "--steps_per_epoch=40", "--steps_per_execution=7",
              f"--train_dir={tmp_path}/train"]
    flags = [*common, "--params=filters=4,dense_units=16"]
    first = run(start_process, "first", *flags, "--train_steps=80")
    assert "After 80 training steps" in first
    whole = tmp_path / "train/ckpt-00000080.keras"
    whole.write_bytes(whole.read_bytes()[:1000])
    second = run(start_process, "second", *flags, "--train_steps=120", "--learning_rate=0.01")
    assert "ckpt-00000080.keras cannot be read" in second
    assert "restored " in second and "epochs 2 to 3 of 40 steps each: training ends at step 120" in second
    assert "After 120 training steps" in second
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == [
        "ckpt-00000040.keras", "ckpt-00000080.keras", "ckpt-00000120.keras"]
    third = run(start_process, "third", *flags, "--train_steps=120")
    assert "nothing to train: the global step is 120" in third
    assert accuracy(third) == accuracy(second)
    other = run(start_process, "other", *common, "--train_steps=200", "--params=filters=8,dense_units=16", exit_code=1)
    assert "is of another model: weights: conv1/kernel" in other.replace("\n", " ")


def test_sigterm_saves_within_an_epoch_and_the_same_command_continues(start_process, tmp_path):
    """Exit code 143 at the step at hand; the second run goes on with the next one, and ends with both."""
    for plugin in ("tiny.py", "keras_tiny.py"):
        shutil.copy(REPO / "tests/plugins" / plugin, tmp_path)
    flags = ["keras", "--model=keras_tiny", "--dataset=keras_tiny", "--batch_size=16", "--log_steps=10",
             "--train_steps=100", "--steps_per_epoch=50", f"--params=gate={tmp_path}/gate,gate_batch=70",
             "--save_summaries_steps=0", f"--train_dir={tmp_path}/train"]
    start_process.start("first", flags, cwd=tmp_path)
    start_process.wait_for_line("first", "step 60 of 100")
    start_process.signal("first", signal.SIGTERM)
    pathlib.Path(f"{tmp_path}/gate.0").touch()
    assert start_process.exit_code("first") == 143
    stopped = int(re.search(r"told to stop at step (\d+), and saved", start_process.log("first"))[1])
    assert 60 <= stopped <= 71
    second = run(start_process, "second", *flags, cwd=tmp_path)
    assert f"resumed at step {stopped}, from the backup" in second
    assert "After 100 training steps, on 640 held-out examples:" in second
    assert not (tmp_path / "train/backup-50").exists()


def test_the_model_of_the_readme_trains(start_process, tmp_path):
    """Written as it stands there, outside the repository, without any strategy."""
    [block] = [block for block in re.findall(r"```python\n(.*?)```", (REPO / "README.md").read_text(), re.DOTALL)
               if "build_model" in block]
    (tmp_path / re.match(r"# (\w+\.py)", block)[1]).write_text(block)
    output = run(start_process, "mine", *DIGITS, "--model=mykeras", "--train_steps=150", "--learning_rate=0.01",
                 f"--train_dir={tmp_path}/train", cwd=tmp_path)
    assert accuracy(output) > 0.8


def test_without_a_tpu_the_error_says_what_was_looked_for(start_process, tmp_path):
    """Exit code 2, one line."""
    output = run(start_process, "tpu", *DIGITS, "--strategy=tpu", f"--train_dir={tmp_path}/train", exit_code=2,
                 env={"TPU_NAME": ""})
    assert output.startswith("ps_train: --strategy=tpu: no TPU was found. Looked for --tpu_name (not given), TPU_NAME")
    assert output.count("\n") == 1


def test_a_plugin_that_breaks_the_contract_is_told(start_process, tmp_path):
    """A model that is not compiled: one line, exit code 1."""
    (tmp_path / "raw.py").write_text("import tf_keras\n"
                                     "def build_model(params):\n"
                                     "    return tf_keras.Sequential([tf_keras.layers.Dense(1)])\n")
    output = run(start_process, "raw", *DIGITS, "--model=raw", f"--train_dir={tmp_path}/train", exit_code=1,
                 cwd=tmp_path)
    assert output.splitlines()[-1] == (
        "ps_train: raw.build_model: the model is not compiled; it must return a compiled, built model")
