"""plan and doctor as processes; nothing here needs a cluster."""

from __future__ import annotations

import json
import os
import re
import socket
import threading

import pytest

from ps_train.cluster import resolve
from ps_train.errors import ConfigError
from ps_train.parts.doctor import examine, machine, network
from ps_train.parts.doctor.flags import parse_doctor
from ps_train.parts.doctor.machine import FAIL
from ps_train.parts.plan.flags import parse_plan
from tests import processes
from tests.processes import ProcessGroup


def test_the_doctors_of_a_cluster_measure_each_way(tmp_path):
    """One for each of three tasks: each has a line for each other task, and all end with 0."""
    cluster = processes.TaskCluster(1, 2)
    with ProcessGroup(tmp_path / "logs") as group:
        for job, index in cluster.tasks():
            group.start(f"{job}-{index}", ["doctor", *cluster.flags(job, index), "--dataset=digits",
                                           "--peer_timeout_secs=80", f"--train_dir={tmp_path}"])
        assert set(group.wait().values()) == {0}, group.logs()
        for job, index in cluster.tasks():
            ways = re.findall(r"^ok +(\S+) \S+: \S+ us there and back, \S+ MB/s, clocks 0\.\d+ s apart$",
                              group.log(f"{job}-{index}"), re.MULTILINE)
            assert sorted(ways) == sorted({"ps:0", "worker:0", "worker:1"} - {f"{job}:{index}"}), group.logs()
            assert "ok   data: digits is ready" in group.log(f"{job}-{index}")


def test_a_missing_task_and_a_wrong_name_are_told():
    """The wait for a doctor is bounded, and a name that does not resolve is named."""
    own, absent, port = processes.free_ports(3)
    found = resolve.find_cluster(
        ps_hosts=f"localhost:{own}", worker_hosts=f"localhost:{absent},localhost:{port},nohost.invalid:1",
        job_name="ps", task_index=0)
    told = [finding.line() for finding in network.meet_others(found, [*found.ps, *found.workers[:1]], 0.3)]
    assert len(told) == 1 and re.match(r"fail worker:0 localhost:\d+: no doctor answers there within 0.3 s", told[0])
    told = [finding.line() for finding in network.lookups(found.workers)]
    assert told[0].startswith("warn worker:0") and "does not resolve" in told[2], told


def test_another_program_at_an_address_is_no_doctor():
    """It says something else, or nothing: the first is told at once."""
    own, other = processes.free_ports(2)
    with socket.create_server(("localhost", other)) as stranger:
        found = resolve.find_cluster(ps_hosts=f"localhost:{own}", worker_hosts=f"localhost:{other}", job_name="ps")
        stranger.settimeout(processes.DEADLINE_SECS)
        findings = network.meet_others(found, [*found.ps, *found.workers], 5.0)

        def greet():
            connection, _ = stranger.accept()
            connection.sendall(b"SSH-2.0-something else than a doctor\n")

        thread = threading.Thread(target=greet)
        thread.start()
        assert "another program listens there" in next(findings).line()
        findings.close()
        thread.join()


def test_this_machine_is_examined(tmp_path):
    """Each check has a line; a folder that cannot be made is looked for where it would be."""
    lines = [finding.line() for check in (machine.software(), machine.processor(1), machine.gpus(), machine.own_name(),
                                          machine.folder(str(tmp_path / "a/b"))) for finding in check]
    assert not [line for line in lines if line.startswith("fail")], lines
    subjects = [line[5:].partition(":")[0] for line in lines]
    assert {"Python", "TensorFlow", "numpy", "processor", "cores", "GPU", "disk", "train_dir"} <= set(subjects)
    assert not (tmp_path / "a").exists()
    assert list(tmp_path.iterdir()) == []
    [too_many] = machine.free_ports(3, 65534)
    assert too_many.verdict == "fail"


@pytest.mark.parametrize(("argv", "told"), [
    (["--ps_hosts=a:1"], "only one of them"), (["--job_name=ps"], "given without --ps_hosts"),
    (["--ps_hosts=a:1", "--worker_hosts=b:1", "--job_name=evaluator"], "allowed: one of ps, worker"),
    (["--ps_hosts=a:1", "--worker_hosts=b:1", "--task_index=1"], "given without --job_name"),
    (["--remote_dir=/x"], "--remote_dir: has an effect only with --hosts"),
    (["--peer_timeout_secs=0"], "--peer_timeout_secs")])
def test_a_wrong_flag_is_refused(argv, told):
    """In one line."""
    with pytest.raises(ConfigError, match=told):
        parse_doctor(argv)


@pytest.mark.parametrize(("argv", "told"), [
    (["--hosts=a:x"], "got slots='x'"), (["--hosts=localhost,b"], "look for the tasks of localhost"),
    (["--hosts=a", "--env=1"], "--env: got '1'"),
    (["--ps_hosts=a:1", "--worker_hosts=b:1,c:1", "--job_name=worker"], "--task_index: not given")])
def test_what_contradicts_is_refused_before_the_first_check(argv, told, capsys):
    """The checks may take minutes."""
    with pytest.raises(ConfigError, match=told):
        examine.examine(parse_doctor(argv))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["file", "file/train", "link"])
def test_a_file_is_no_train_dir(tmp_path, name):
    """Nor is a link that leads nowhere; training could not make the folder."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    [found] = machine.folder(str(tmp_path / name))
    assert found.verdict == "fail" and "is not a directory" in found.text


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="needs a second file system")
def test_a_link_is_on_the_file_system_to_which_it_leads(tmp_path):
    """Such as a link to a shared folder."""
    (tmp_path / "link").symlink_to("/dev/shm")
    told = [finding.text for finding in machine.folder(str(tmp_path / "link/train"))]
    assert told[-1].endswith("of type tmpfs"), told


def test_the_plan_is_of_the_chief():
    """Whichever task the flags name; without addresses only the numbers count; TF_CONFIG counts as in training."""
    config, cluster, own = parse_plan(["--num_ps=3", "--num_workers=4", "--json", "--batch_size=7"], {})
    assert (len(cluster.ps), cluster.num_workers, cluster.is_chief) == (3, 4, True)
    assert (own.json, config.batch_size) == (True, 7)
    told = {"cluster": {"ps": ["a:1", "b:1"], "chief": ["c:1"]}, "task": {"type": "ps", "index": 1}}
    _, cluster, _ = parse_plan([], {"TF_CONFIG": json.dumps(told)})
    assert (len(cluster.ps), cluster.job, cluster.index) == (2, "chief", 0)
    _, cluster, _ = parse_plan(["--ps_hosts=a:1", "--worker_hosts=b:1,c:1", "--job_name=ps"], {})
    assert (len(cluster.ps), cluster.task.address) == (1, "b:1")
    _, cluster, _ = parse_plan(["--num_ps=3", "--worker_hosts=b:1,c:1"], {})
    assert (len(cluster.ps), cluster.num_workers) == (3, 2)
    _, cluster, _ = parse_plan(["--ps_hosts=a:1", "--num_workers=5"], {})
    assert (len(cluster.ps), cluster.num_workers) == (1, 5)


@pytest.mark.parametrize(("argv", "environ", "told"), [
    (["--num_ps=3", "--ps_hosts=a:1"], {}, "--num_ps: --ps_hosts names"),
    (["--num_workers=3", "--worker_hosts=a:1"], {}, "--num_workers: --worker_hosts names"),
    (["--num_ps=3"], {"TF_CONFIG": '{"cluster": {}}'}, "--num_ps: TF_CONFIG names")])
def test_a_number_beside_addresses_is_refused(argv, environ, told):
    """One of them would have no effect."""
    with pytest.raises(ConfigError, match=told):
        parse_plan(argv, environ)


LARGE_DATA = """
import numpy as np
import ps_train

KEPT = np.ones(400 << 20, np.uint8)

def input_fn(mode, params, shard):
    return ps_train.from_arrays((np.ones([100, 784], np.float32), np.zeros([100], np.int32)), 10, shuffle=False,
                                repeat=True, seed=0)
"""


def test_the_data_is_in_the_memory_of_workers_only(tmp_path):
    """A ps does not load it."""
    (tmp_path / "large_data.py").write_text(LARGE_DATA)
    with ProcessGroup(tmp_path / "logs") as group:
        group.start("plan", ["plan", "--dataset=large_data", "--model=softmax", "--num_ps=1", "--json"], cwd=tmp_path,
                    is_exec=True)
        assert group.exit_code("plan") == 0, group.logs()
        [line] = [line for line in group.log("plan").splitlines() if line.startswith("{")]
    record = json.loads(line)
    assert record["worker"]["memory_bytes"] > record["ps"][0]["memory_bytes"] + (300 << 20)


def test_a_plan_is_printed(tmp_path):
    """As JSON, by a process that writes no file."""
    with ProcessGroup(tmp_path / "logs") as group:
        group.start("plan", ["plan", "--dataset=digits", "--num_ps=3", "--sync_replicas", "--json", "--optimizer=sgd",
                             f"--train_dir={tmp_path / 'train'}"])
        assert group.exit_code("plan") == 0, group.logs()
        [line] = [line for line in group.log("plan").splitlines() if line.startswith("{")]
    record = json.loads(line)
    assert {one["name"]: one["num_bytes"] for one in record["placed"] if one["kind"] == "parameter"} == {
        "hidden/weights": 784 * 100 * 4, "hidden/biases": 400, "softmax/weights": 4000, "softmax/biases": 40}
    assert record["worker"]["pulls"]["bytes"] >= (784 * 100 + 100 + 1000 + 10) * 4
    assert not (tmp_path / "train").exists()


def test_a_mistyped_folder_of_data_is_told_and_not_made(tmp_path):
    """A dataset that downloads its files would make it."""
    finding = examine._data(parse_doctor([f"--data_dir={tmp_path}/nowhere"]))
    assert finding.verdict == FAIL and f"--data_dir: got '{tmp_path}/nowhere', which does not exist" in finding.text
    assert not (tmp_path / "nowhere").exists()
