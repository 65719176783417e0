"""`ps_train.Training`: what it asks of a running training, by the verbs of this part."""

from __future__ import annotations

from tests.system.launch.test_training import ENDLESS, run, shown  # noqa: F401 (run is a fixture)


def test_a_program_asks_for_the_status_and_a_checkpoint_and_stops(run):  # noqa: F811 (the fixture)
    """Before the chief has begun, the training is starting; after its end, the status says how it ended."""
    program = run("""
import time
training = ps_train.Training(num_ps=1, num_workers=1, log_steps=5, train_dir="train", **json.loads(sys.argv[2]))
with training.launch():
    show(state=training.status()["state"])
    while training.progress is None:
        time.sleep(0.1)
    status = training.status()
    show(state=status["state"], step=status["step"])
    show(path=training.save())
    result = training.stop()
show(error=result.error.code, exit_codes=result.exit_codes, step=result.step, checkpoint=result.checkpoint)
show(state=training.status()["state"], is_running=training.is_running)
assert training.wait() is result
try:
    training.save()
except ps_train.PsTrainError as error:
    show(code=error.code)
""", **ENDLESS)
    if program.wait() != 0:
        program.fail("exit code")
    program.check_no_process_is_left()
    starting, running, saved, ended, later, refused = shown(program)
    assert starting["state"] in ("starting", "running")
    assert running["state"] == "running" and running["step"] > 0
    assert "train/model.ckpt-" in saved["path"]
    assert (ended["error"], ended["exit_codes"]) == ("stopped_by_signal", {"ps:0": 143, "worker:0": 143})
    assert ended["checkpoint"].endswith(f"model.ckpt-{ended['step']}")
    assert later == {"state": "stopped", "is_running": False}
    assert refused == {"code": "training_ended"}
