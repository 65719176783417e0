"""`ps_train.Training` in programs with real clusters: results, sweeps, and what is left when a program ends."""

from __future__ import annotations

import json

import pytest

from tests.system.launch.test_launcher import Launched

PROGRAM = """
    import json, sys
    import ps_train

    def trial(**flags):
        return ps_train.Training("toy", "toy", num_ps=1, num_workers=1, log_steps=5, save_summaries_steps=0, **flags)

    def show(**values):
        print(json.dumps(values), flush=True)

    {body}
"""


@pytest.fixture
def run(tmp_path):
    """Runs programs, whose first argument makes the tasks forks, and ends what they leave when a test fails."""
    programs = []

    def start(body, *arguments):
        lines = PROGRAM.replace("{body}", "\n    ".join(body.strip().splitlines()))
        programs.append(Launched(tmp_path, arguments=["launch", *arguments], program=lines))
        return programs[-1]

    yield start
    for program in programs:
        program.clean_up()


def shown(program):
    """Returns the values that a program has shown, each a dict."""
    return [json.loads(line) for line in program.output.splitlines() if line.startswith("{")]


def test_a_program_launches_waits_and_reads_the_result(run, tmp_path):
    """Twice in one folder, the second time from a thread; the second one continues."""
    program = run("""
import threading
training = trial(train_dir="train", train_steps=20)
result = training.launch().wait(timeout_secs=100)
show(step=result.step, why=result.why, metrics=result.metrics, checkpoint=result.checkpoint,
     exit_codes=result.exit_codes, step_of_progress=training.progress.step)
again = trial(train_dir="train", train_steps=40)
thread = threading.Thread(target=lambda: show(step=again.launch().wait(timeout_secs=100).step))
thread.start()
thread.join()
""")
    if program.wait() != 0:
        program.fail("exit code")
    program.check_no_process_is_left()
    first, second = shown(program)
    assert (first["step"], first["exit_codes"]) == (20, {"ps:0": 0, "worker:0": 0})
    assert first["why"] == "the global step reached train_steps"
    assert first["checkpoint"].endswith("model.ckpt-20")
    assert first["step_of_progress"] == 20
    assert second == {"step": 40}
