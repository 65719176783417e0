"""plan and doctor as processes; nothing here needs a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading

import pytest

from ps_train.cluster import resolve
from ps_train.cluster.spec import Task
from ps_train.parts.doctor import machine, network, verb
from ps_train.parts.doctor.machine import FAIL, OK, WARN
from ps_train.parts.doctor.verb import parse_doctor
from ps_train.parts.plan.verb import parse_plan
from tests import processes
from tests.children import REPO, wait_until
from tests.errors import raises
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


def test_a_missing_task_and_a_wrong_name_are_findings():
    """The wait for a doctor is bounded, and a name that does not resolve is named."""
    port, *other_ports = processes.free_ports(3)
    cluster = resolve.find_cluster(
        ps_hosts=f"localhost:{port}", job_name="ps", task_index=0,
        worker_hosts=",".join([*(f"localhost:{other}" for other in other_ports), "nohost.invalid:1"]))
    [finding] = network.meet_others(cluster, [*cluster.ps, *cluster.workers[:1]], 0.3)
    assert finding.verdict == FAIL and finding.subject.startswith("worker:0 ") and "0.3 s" in finding.text
    lookups = list(network.lookups(cluster.workers))
    assert [finding.verdict for finding in lookups] == ["warn", "warn", "fail"]
    assert "nohost.invalid" in lookups[2].subject


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_doctor_answers_at_each_kind_of_address():
    """TensorFlow's server does, too, and the name of a machine may have an IPv6 address only."""
    [port] = processes.free_ports(1)
    with contextlib.closing(network.MeasuringServer(Task("ps", 0, f"localhost:{port}"))) as server:
        for number, host in enumerate(["127.0.0.1", "[::1]"]):
            finding = network._measure(Task("worker", number, ""), Task("ps", 0, f"{host}:{port}"))
            assert finding is not None and finding.verdict == "ok"
        wait_until(lambda: server.measured_by == {"worker:0", "worker:1"}, "both")


def test_another_program_at_an_address_is_no_doctor():
    """A wrong greeting is reported at once; a silent program looks like a doctor that has not started."""
    port, other = processes.free_ports(2)
    with socket.create_server(("localhost", other)) as stranger:
        cluster = resolve.find_cluster(ps_hosts=f"localhost:{port}", worker_hosts=f"localhost:{other}", job_name="ps")
        stranger.settimeout(processes.DEADLINE_SECS)
        findings = network.meet_others(cluster, [*cluster.ps, *cluster.workers], 5.0)

        def greet():
            connection, _ = stranger.accept()
            connection.sendall(b"SSH-2.0-something else than a doctor\n")

        thread = threading.Thread(target=greet)
        thread.start()
        finding = next(findings)
        assert finding.verdict == FAIL and str(other) in finding.subject
        findings.close()
        thread.join()


def test_this_machine_is_examined(tmp_path):
    """Each check has a finding; of a missing folder, the first existing parent is examined."""
    findings = [*machine.software(), *machine.processor(1), machine.gpus(), machine.host_name(),
                *machine.folder(str(tmp_path / "a/b"))]
    assert not [finding for finding in findings if finding.verdict == FAIL]
    assert {finding.subject for finding in findings} >= {
        "Python", "TensorFlow", "numpy", "processor", "cores", "GPU", "disk", "train_dir"}
    assert list(tmp_path.iterdir()) == []
    assert machine.free_ports(3, 65534).verdict == FAIL


@pytest.mark.parametrize(("argv", "code"), [
    (["--ps_hosts=a:1"], "flag_missing"), (["--job_name=ps"], "flag_without_effect"),
    (["--ps_hosts=a:1", "--worker_hosts=b:1", "--job_name=evaluator"], "flag_out_of_range"),
    (["--ps_hosts=a:1", "--worker_hosts=b:1", "--task_index=1"], "flag_without_effect"),
    (["--remote_dir=/x"], "flag_without_effect"), (["--peer_timeout_secs=0"], "flag_out_of_range")])
def test_a_wrong_flag_is_refused(argv, code):
    """In one line, which names the flag."""
    with raises(code) as caught:
        parse_doctor(argv)
    assert argv[-1].partition("=")[0] in str(caught.value)


@pytest.mark.parametrize(("argv", "code"), [
    (["--hosts=a:x"], "host_malformed"), (["--hosts=localhost,b"], "loopback_address"),
    (["--hosts=a", "--env=1"], "flag_malformed"),
    (["--ps_hosts=a:1", "--worker_hosts=b:1,c:1", "--job_name=worker"], "flag_missing")])
def test_flags_that_contradict_are_refused_before_the_first_check(argv, code, capsys):
    """The checks may take minutes."""
    with raises(code):
        verb.examine(parse_doctor(argv))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["file", "file/train", "link"])
def test_a_file_is_no_train_dir(tmp_path, name):
    """Nor is a link that leads nowhere; training could not make the folder."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    [finding] = machine.folder(str(tmp_path / name))
    assert finding.verdict == FAIL and finding.subject == "train_dir"


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="needs a second file system")
def test_a_link_is_on_the_file_system_to_which_it_leads(tmp_path):
    """Such as a link to a shared folder."""
    (tmp_path / "link").symlink_to("/dev/shm")
    *_, finding = machine.folder(str(tmp_path / "link/train"))
    assert finding.text.endswith("of type tmpfs")


def test_a_mount_with_a_blank_in_its_name_is_found(monkeypatch, tmp_path):
    """/proc/mounts has it as \\040."""
    mounts, folder = tmp_path / "mounts", tmp_path / "my share"
    folder.mkdir()
    mounts.write_text(f"disk / ext4 rw 0 0\nserver:/a {str(folder).replace(' ', chr(92) + '040')} nfs4 rw 0 0\n")
    monkeypatch.setattr(machine, "_MOUNTS", str(mounts))
    *_, finding = machine.folder(str(folder / "train"))
    assert "of type nfs4" in finding.text


def test_the_memory_is_what_the_limit_of_a_container_leaves(monkeypatch, tmp_path):
    """Of the innermost or an outer group; files that the kernel can drop count as free, as for the kubelet."""
    mib = 1 << 20
    monkeypatch.setattr(machine, "_CGROUPS", str(tmp_path / "none"))
    whole = machine.free_memory()
    for name, limit, used, dropped in (("", "max", 900, 0), ("job", 50, 40, 10), ("job/step", 30, 25, 1)):
        group = tmp_path / name
        group.mkdir(exist_ok=True)
        (group / "memory.max").write_text(f"{limit if limit == 'max' else limit * mib}\n")
        (group / "memory.current").write_text(f"{used * mib}\n")
        (group / "memory.stat").write_text(f"anon 1\ninactive_file {dropped * mib}\nactive_file 7\n")
    expected = {"": whole, "job": 20 * mib, "job/step": 6 * mib}
    for name, free in expected.items():
        monkeypatch.setattr(machine, "_CGROUPS", str(tmp_path / name))
        assert machine.free_memory() == pytest.approx(free, rel=0.5)
    findings = {finding.subject: finding for finding in machine.processor(3)}
    assert findings["memory"].verdict == WARN and findings["memory"].text.startswith("0.0 GB free for 3 tasks")


def test_the_plan_is_of_the_chief():
    """Whichever task the flags name; without addresses only the numbers count; TF_CONFIG counts as in training."""
    config, cluster, plan_flags = parse_plan(["--num_ps=3", "--num_workers=4", "--json", "--batch_size=7"], {})
    assert (len(cluster.ps), cluster.num_workers, cluster.is_chief) == (3, 4, True)
    assert (plan_flags.json, config.batch_size) == (True, 7)
    tf_config = {"cluster": {"ps": ["a:1", "b:1"], "chief": ["c:1"]}, "task": {"type": "ps", "index": 1}}
    _, cluster, _ = parse_plan([], {"TF_CONFIG": json.dumps(tf_config)})
    assert (len(cluster.ps), cluster.job, cluster.index) == (2, "chief", 0)
    _, cluster, _ = parse_plan(["--ps_hosts=a:1", "--worker_hosts=b:1,c:1", "--job_name=ps"], {})
    assert (len(cluster.ps), cluster.task.address) == (1, "b:1")
    _, cluster, _ = parse_plan(["--num_ps=3", "--worker_hosts=b:1,c:1"], {})
    assert (len(cluster.ps), cluster.num_workers) == (3, 2)
    _, cluster, _ = parse_plan(["--ps_hosts=a:1", "--num_workers=5"], {})
    assert (len(cluster.ps), cluster.num_workers) == (1, 5)


@pytest.mark.parametrize(("argv", "environ"), [
    (["--num_ps=3", "--ps_hosts=a:1"], {}), (["--num_workers=3", "--worker_hosts=a:1"], {}),
    (["--num_ps=3"], {"TF_CONFIG": '{"cluster": {}}'})])
def test_a_number_in_addition_to_addresses_is_refused(argv, environ):
    """One of them would have no effect."""
    with raises("flags_conflict"):
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
    parameters = [variable for variable in record["placed"] if variable["kind"] == "parameter"]
    assert {variable["name"]: variable["num_bytes"] for variable in parameters} == {
        "hidden/weights": 784 * 100 * 4, "hidden/biases": 400, "softmax/weights": 4000, "softmax/biases": 40}
    assert record["worker"]["pulls"]["bytes"] >= (784 * 100 + 100 + 1000 + 10) * 4
    assert not (tmp_path / "train").exists()


def test_a_mistyped_folder_of_data_is_a_finding_and_is_not_made(tmp_path):
    """A dataset that downloads its files would make it."""
    finding = verb.check_data(parse_doctor([f"--data_dir={tmp_path}/nowhere"]))
    assert finding.verdict == FAIL and f"{tmp_path}/nowhere" in finding.text
    assert not (tmp_path / "nowhere").exists()


READS_A_PARAMETER = """
import ps_train

DEFAULT_PARAMS = {"schema": "none"}

def input_fn(mode, params, shard):
    raise NotImplementedError

def prepare(params):
    if params["schema"] == "none":
        raise ps_train.DataError("schema: no such file")
"""


@pytest.mark.parametrize(("flags", "verdict"), [
    ([], FAIL), (["--params=schema=here"], OK), (["--params=schema=here,hidden_units_scale=2", "--model=my_model"], OK),
    (["--params=schema=here,hidden_units_scale=2"], FAIL)])
def test_the_data_are_loaded_with_the_parameters_of_the_training(tmp_path, monkeypatch, flags, verdict):
    """Some of which may be the model's."""
    (tmp_path / "my_data.py").write_text(READS_A_PARAMETER)
    (tmp_path / "my_model.py").write_text(
        'DEFAULT_PARAMS = {"hidden_units_scale": 1}\ndef model_fn(features, labels, mode, params): pass\n')
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{REPO}")
    finding = verb.check_data(parse_doctor(["--dataset=my_data", *flags]))
    assert finding.verdict == verdict, finding


def test_what_is_no_text_in_the_output_of_the_data_is_no_traceback(tmp_path, monkeypatch):
    """As of a library that prints the name of a file."""
    (tmp_path / "my_data.py").write_text("import os\nos.write(2, b'caf\\xe9\\n')\n" + READS_A_PARAMETER)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{REPO}")
    finding = verb.check_data(parse_doctor(["--dataset=my_data"]))
    assert finding.verdict == FAIL and "schema: no such file" in finding.text


@pytest.mark.parametrize(("flags", "verdict"), [
    ([], FAIL), (["--hosts=node1:2"], WARN),
    (["--ps_hosts=a:1", "--worker_hosts=b:1", "--job_name=ps"], WARN),
    (["--ps_hosts=a:1", "--worker_hosts=b:1", "--job_name=worker", "--task_index=0"], FAIL)])
def test_data_that_another_machine_reads_may_be_missing_here(flags, verdict):
    """A launch on other machines leaves them to the chief's, and a ps reads none."""
    finding = verb.check_data(parse_doctor(["--data_dir=/nowhere/data", *flags]))
    assert finding.verdict == verdict and "'/nowhere/data'" in finding.text
