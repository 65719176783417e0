"""`ps_train tune` as a user runs it."""

from __future__ import annotations

import json
import signal

from tests.processes import REPO, ProcessGroup

FLAGS = ["tune", "--model=tests.plugins.tiny", "--dataset=tests.plugins.tiny", "--num_ps=1", "--num_workers=1"]


def test_a_trial_is_measured_and_leaves_nothing(tmp_path):
    """With no time for more, it is the first choice that is measured; the user's folder is not made."""
    with ProcessGroup(tmp_path / "logs") as group:
        group.start("tune", [*FLAGS, "--tune_secs=0.1", "--trial_secs=0.2", "--json", f"--train_dir={tmp_path}/mine"],
                    env={"TMPDIR": str(tmp_path)})
        assert group.wait() == {"tune": 0}, group.logs()
        answer = json.loads(group.log("tune").strip().splitlines()[-1])
    assert [trial["num_workers"] for trial in answer["trials"]] == [1] and answer["mini_batches_per_sec"] > 0
    assert answer["command"][0] == "launch" and [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_sigterm_ends_a_trial_and_its_tasks(tmp_path):
    """With 143, and no process or folder is left."""
    with ProcessGroup(tmp_path / "logs") as group:
        group.start("tune", [*FLAGS, "--trial_secs=600"], env={"TMPDIR": str(tmp_path)})
        group.wait_for_line("tune", "mini-batches/s")
        group.signal("tune", signal.SIGTERM)
        assert group.wait() == {"tune": 143}, group.logs()
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_an_error_of_the_model_is_shown_with_its_place(tmp_path):
    """The output of a trial is not shown, so the traceback of the model is."""
    (tmp_path / "wrong.py").write_text("def model_fn(features, labels, mode, params):\n    return features['age']\n")
    with ProcessGroup(tmp_path / "logs") as group:
        group.start("tune", ["tune", "--model=wrong", *FLAGS[2:]], env={"PYTHONPATH": f"{tmp_path}:{REPO}"})
        assert group.wait() == {"tune": 1}, group.logs()
        assert "line 2, in model_fn" in group.log("tune") and "[user_code_failed]" in group.log("tune")
