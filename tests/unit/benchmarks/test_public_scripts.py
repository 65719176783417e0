"""The catalogue of public scripts: every entry can be started, and the clusters are as the scripts expect them."""

import collections
import json
import re
import sys

import pytest

from benchmarks.public import catalogue, commands, report
from benchmarks.public.running import Ended, Result
from benchmarks.public.sandbox import Sandbox

_JOBS = {job.name: job for job in catalogue.load()}
_FIELD = [job for half in ("seen", "unseen") for job in catalogue.load(set_name=half)]
_LATER = {name: catalogue.load(set_name=name) for name in catalogue.LATER}
_SETS = [list(_JOBS.values()), _FIELD, *_LATER.values()]  # in the order in which they were collected
_PLACE = Sandbox(work="/w", code="/w/code", home="/w/home", data="/data", prefix=())


def test_at_least_thirty_jobs_of_at_least_twenty_repositories():
    """The catalogue is as large as its README says."""
    assert len(_JOBS) >= 30
    assert len({job.repository for job in _JOBS.values()}) >= 20


def test_the_field_is_drawn_as_its_file_says():
    """The halves are those of the seed, of at most two jobs a repository, and none of the catalogue's repositories."""
    entries = json.loads(catalogue.FIELD.read_text(encoding="utf-8"))
    assert [job.name for job in catalogue.load(set_name="seen")] == entries["seen"]
    assert (len(catalogue.load(set_name="seen")), len(catalogue.load(set_name="unseen"))) == (33, 34)
    counts = collections.Counter(job.repository for job in _FIELD)
    assert max(counts.values()) <= 2
    assert not set(counts) & {job.repository for job in _JOBS.values()}


def test_the_jobs_of_the_third_set_are_of_other_repositories():
    """They are at least twenty, at most two a repository, and no other set has one of their repositories."""
    counts = collections.Counter(job.repository for job in _LATER["third"])
    assert len(_LATER["third"]) >= 20
    assert max(counts.values()) <= 2
    assert not set(counts) & {job.repository for job in [*_JOBS.values(), *_FIELD]}


@pytest.mark.parametrize("name", catalogue.LATER[1:])
def test_twenty_jobs_more_are_of_as_many_other_repositories(name):
    """No set that was there before has one of their repositories; the eleventh is what was left of the candidates.

    The fourteenth and the fifteenth are halves of one lot, as are the two after them.
    """
    jobs = _LATER[name]
    before = [job for earlier in _SETS[:_SETS.index(jobs)] for job in earlier]
    assert len({job.repository.lower() for job in jobs}) == len(jobs)
    smaller = {"eleventh": 12, "fourteenth": 14, "fifteenth": 14, "sixteenth": 10, "seventeenth": 10, "eighteenth": 10,
               "nineteenth": 10, "twentieth": 10, "twentyfirst": 12}
    assert len(jobs) >= smaller.get(name, 20)
    assert not {job.repository.lower() for job in jobs} & {job.repository.lower() for job in before}


def test_a_name_stands_for_one_job():
    """Results and logs are kept under the name."""
    names = [job.name for jobs in _SETS for job in jobs]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("job", [job for jobs in _SETS for job in jobs], ids=lambda job: job.name)
def test_an_entry_is_well_formed(job):
    """Each entry names a commit and a kind, and its placeholders are known."""
    assert re.fullmatch("[0-9a-f]{40}", job.commit)
    assert re.fullmatch("[^/]+/[^/]+", job.repository)
    assert job.kind in catalogue.KINDS
    assert job.cluster_by in ("flags", "TF_CONFIG", "environment", "script", "arguments")
    tasks = commands.tasks(job, "plain", _PLACE)
    assert len(tasks) == sum(job.tasks.values())
    words = [word for task in tasks for word in task.command if job.cluster_by != "environment"]
    assert not any(re.search(r"\{\w+\}", word) for word in words)


def test_flags_tell_a_task_of_its_cluster():
    """The ps comes first, and each task has its own number among the same hosts."""
    tasks = commands.tasks(_JOBS["tousyou-criteo"], "run", _PLACE)
    assert [task.name for task in tasks] == ["ps:0", "worker:0", "worker:1"]
    assert tasks[2].command[:5] == [sys.executable, "-m", "ps_train", "run", "criteo_d.py"]
    assert tasks[2].command[-4:] == ["--ps_hosts=localhost:22220", "--worker_hosts=localhost:22221,localhost:22222",
                                     "--job_name=worker", "--task_index=1"]
    assert "TF_CONFIG" not in tasks[2].environment


def test_tf_config_leaves_out_the_evaluator():
    """As Kubeflow does, the evaluator knows of the others, but they do not know of it."""
    tasks = {task.name: task for task in commands.tasks(_JOBS["kubeflow-examples-mnist"], "plain", _PLACE)}
    described = json.loads(tasks["evaluator:0"].environment["TF_CONFIG"])
    assert set(described["cluster"]) == {"ps", "chief", "worker"}
    assert described["task"] == {"type": "evaluator", "index": 0}


def test_options_stand_before_a_script_whose_name_may_have_blanks():
    """They are those of `ps_train run`; plain Python gets the script only."""
    job = next(job for job in _FIELD if job.name == "caicloud-sync")
    assert commands.tasks(job, "run", _PLACE)[0].command[1:6] == \
        ["-m", "ps_train", "run", "--python2", "5. 同步更新模式样例程序.py"]
    assert commands.tasks(job, "plain", _PLACE)[0].command[1] == "5. 同步更新模式样例程序.py"


def test_a_task_may_have_a_script_arguments_and_environment_of_its_own():
    """They are found by the name of the job or of the task, beside those of all tasks."""
    jobs = {job.name: job for job in _LATER["fifth"]}
    tasks = {task.name: task.command for task in commands.tasks(jobs["haiy-servers"], "plain", _PLACE)}
    assert [tasks[name][1] for name in ("ps:0", "worker:1", "client:1")] == [
        "cluster/local_cluster/grpc_tensorflow_server.py", "cluster/local_cluster/grpc_tensorflow_server.py",
        "dist_train_example_model.py"]
    assert "--task_id=1" in tasks["worker:1"]
    assert "--worker_hosts=localhost:22221,localhost:22222" in tasks["client:0"]
    tasks = {task.name: task.command for task in commands.tasks(jobs["masdse-line"], "plain", _PLACE)}
    assert [tasks[name][-1] for name in ("ps:0", "worker:0", "worker:1")] == [
        "--ip=10.100.68.245", "--ip=10.100.68.193", "--ip=10.100.68.183"]
    all_tasks = commands.tasks(jobs["aws-deepfm"], "run", _PLACE)
    hosts = {task.name: task.environment["SM_CURRENT_HOST"] for task in all_tasks}
    assert hosts == {"ps:0": "algo-1", "master:0": "algo-1", "worker:0": "algo-2"}


def test_an_unknown_name_is_refused():
    """A name that fits no job is an error that lists the jobs."""
    with pytest.raises(ValueError, match="no job is called 'nobody'.*guide-agn"):
        catalogue.load(["nobody"])


def test_a_table_names_the_first_task_that_failed():
    """A worker's last line comes before that of a ps that did not end."""
    results = [Result("guide-agn", "plain", 3.0, [Ended("ps:0", None, False, 0.0, "waiting"),
                                                  Ended("worker:0", 1, False, 2.0, "Error: a | b")])]
    text = report.table("plain", list(_JOBS.values()), results)
    assert "| guide-agn | monitored-async | 3 | ps:0 did not end, worker:0 1 | worker:0: Error: a / b |" in text
    assert "Every process ended with 0: 0 of 1." in text
