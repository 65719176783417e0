"""launch --hosts: clusters over real ssh servers, on loopback addresses and in network namespaces."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import uuid

import pytest

from tests import namespaces, processes, sshd
from tests.system.launch.test_launcher import ENDLESS, MARK, PLUGIN, REPO, Launched, has_trained_twice, log_of

HOSTS = ("127.0.0.2", "127.0.0.3")  # on Linux all of 127.0.0.0/8 is this machine
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2, which only Linux has from the start")


class LaunchedOverSsh(Launched):
    """A launcher whose tasks run over ssh."""

    def __init__(self, folder, servers, *flags, hosts=HOSTS, before=(), train_dir="train"):
        self.train_dir = folder / train_dir
        self._run = uuid.uuid4().hex
        self._output = folder / f"output-{self._run}.txt"
        self._forks = folder / f"forks-{self._run}"
        self._forks.mkdir()
        (folder / "toy.py").write_text(textwrap.dedent(PLUGIN))
        environ = {name: value for name, value in os.environ.items() if name not in ("TF_CONFIG", "TMUX")}
        environ.update({MARK: self._run, "PYTHONPATH": str(REPO), "TMPDIR": str(folder)})
        arguments = [f"--hosts={','.join(hosts)}", f"--ssh_command={servers.command}", f"--env={MARK},TMPDIR",
                     "--num_ps=1", "--model=toy", "--dataset=toy", "--log_steps=10", f"--train_dir={self.train_dir}",
                     f"--base_port={processes.free_ports(1)[0]}", *flags]
        with open(self._output, "wb") as output:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "ps_train", "launch", *arguments], cwd=folder, env=environ,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def ports(self):
        return sorted({int(port) for port in re.findall(r"_hosts=[^ ]*?:(\d+)", self.output)})

    def check_nothing_is_left_on_hosts(self):
        self.wait_for(lambda: not self.processes(), "every process has ended, here and on the hosts")


@pytest.fixture
def servers(tmp_path):
    """Two ssh servers on addresses of this machine."""
    sshd.require()
    with sshd.SshServers(tmp_path / "ssh", processes.free_ports(1)[0]) as ssh_servers:
        for address in HOSTS:
            ssh_servers.start(address)
        yield ssh_servers


@pytest.fixture
def launch(tmp_path):
    """Starts launchers, and ends what they leave when the test fails."""
    launched = []

    def launch_one(*arguments, **options):
        launched.append(LaunchedOverSsh(tmp_path, *arguments, **options))
        return launched[-1]

    yield launch_one
    for launcher in launched:
        launcher.clean_up()


def test_a_cluster_trains_over_ssh_until_ctrl_c(launch, servers):
    """A worker that is killed on its host starts again there; Ctrl-C ends all, the chief after it has saved."""
    run = launch(servers, *ENDLESS, "--max_restarts=1")
    run.wait_for_training()
    run.wait_for(lambda: " step " in log_of(run, "worker-1"), "worker 1 trains")
    (watcher,) = [pid for pid, command in run.processes().items()
                  if "watch" in command and "worker:1" in command and "ssh" not in command[0]]
    os.kill(watcher, signal.SIGKILL)  # its task goes with it
    run.wait_for(lambda: has_trained_twice(run), "worker 1 trains again")
    run.process.send_signal(signal.SIGINT)
    if run.wait() != 130:
        run.fail("exit code")
    run.check_nothing_is_left_on_hosts()
    assert re.search(r"worker:1 ended with 138; starting it again at once \(restart 1 of 1\)", run.output)
    assert "ps_train: stopped at step" in log_of(run, "worker-0")
    assert list(run.train_dir.glob("model.ckpt-[1-9]*.index")), "the chief has not saved"
    assert re.search(r"Exit codes: ps:0 143 .* worker:0 143 .* worker:1 143 ", run.output), run.output
    typed = re.findall(r"^  (127\.0\.0\.[23]) +cd (\S+) && env .* -m ps_train .*--job_name=(\w+) --task_index=(\d)",
                       run.output, re.MULTILINE)
    assert [(host, job, index) for host, _, job, index in typed] == [
        (HOSTS[0], "ps", "0"), (HOSTS[1], "worker", "0"), (HOSTS[0], "worker", "1")]


def test_a_fault_ends_all_and_a_killed_launcher_leaves_nothing(launch, servers):
    """A task's exit code is the launcher's; after SIGKILL the watchers notice that their connections have ended."""
    faulty = launch(servers, "--params=broken_shard=1,batch_secs=0.02", "--train_steps=1000000")
    if faulty.wait() != 1:
        faulty.fail("exit code")
    faulty.check_nothing_is_left_on_hosts()
    assert "worker:1 | ValueError: this shard is broken" in faulty.output
    assert "worker:1 failed with exit code 1; ending the other tasks" in faulty.output
    run = launch(servers, *ENDLESS, train_dir="train2")
    run.wait_for_training()
    run.process.kill()
    run.process.wait(sshd.DEADLINE_SECS)
    run.check_nothing_is_left_on_hosts()


def run_over_ssh(folder, servers, *words):
    """Returns the ended process of `launch WHAT --hosts ...` on two hosts."""
    what, *rest = words
    command = [sys.executable, "-m", "ps_train", "launch", what, f"--hosts={','.join(HOSTS)}", "--num_ps=1",
               f"--ssh_command={servers.command}", "--num_workers=2",
               f"--base_port={processes.free_ports(1)[0]}", *rest]
    environ = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=sshd.DEADLINE_SECS * 6, cwd=folder,
                           env={**environ, "PYTHONPATH": str(REPO)})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_keras_trains_over_ssh(tmp_path, servers):
    """With a ps, a coordinator and two workers on two hosts."""
    output = run_over_ssh(tmp_path, servers, "keras", "--strategy=parameter_server", "--dataset=data.digits",
                          "--train_steps=20", f"--train_dir={tmp_path / 'train'}")
    assert "After 20 training steps" in output
    assert re.search(r"Exit codes: ps:0 0 .* chief:0 0 .* worker:0 0 .* worker:1 0 ", output), output


def test_an_unchanged_script_trains_over_ssh(tmp_path, servers):
    """Its own addresses are replaced by those of the hosts, as on one machine."""
    output = run_over_ssh(tmp_path, servers, "run", str(REPO / "tests/scripts/written_hosts.py"), "{job_name}",
                          "{task_index}", str(tmp_path / "train"))
    assert re.search(r"Starting ps:0 on 127\.0\.0\.2:\d+, worker:0 on 127\.0\.0\.3:\d+, worker:1 on 127\.0\.0\.2:",
                     output), output
    assert re.search(r"Exit codes: ps:0 0 .* worker:0 0 .* worker:1 0 ", output), output
    taken = [int(number) for number in re.findall(r" took (\d+) ", output)]
    assert len(taken) == 2 and sum(taken) >= 19
    assert (tmp_path / "train/checkpoint").exists()


@pytest.mark.parametrize(("flags", "hosts", "code"), [
    (["--hosts=127.0.0.2,127.0.0.9"], ["127.0.0.9"], "ssh_server_missing"),
    (["--ssh_command={wrong}"], HOSTS, "ssh_refused"),
    (["--remote_python=/no/python"], HOSTS, "remote_path_missing"),
    (["--remote_dir=/no such"], HOSTS, "remote_path_missing"),
    (["--env=PYTHONPATH={other}"], HOSTS, "other_ps_train"),
])
def test_a_host_that_cannot_run_tasks_is_named(tmp_path, servers, flags, hosts, code):
    """One line for each such host, exit code 2, and nothing was started."""
    other = tmp_path / "other"
    (other / "ps_train").mkdir(parents=True)  # the same files, with another version
    for path in (REPO / "ps_train").iterdir():
        (other / "ps_train" / path.name).symlink_to(path)
    (other / "ps_train/__init__.py").unlink()
    (other / "ps_train/__init__.py").write_text('__version__ = "0.0.1"\n')
    words = [flag.format(wrong=servers.with_key("wrong_key"), other=other) for flag in flags]
    default = [f"--hosts={','.join(HOSTS)}", f"--ssh_command={servers.command}"]
    given = {word.partition("=")[0] for word in words}
    command = [sys.executable, "-m", "ps_train", "launch", *words,
               *(word for word in default if word.partition("=")[0] not in given), f"--train_dir={tmp_path / 'train'}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=sshd.DEADLINE_SECS * 3, cwd=tmp_path,
                           env={**os.environ, "PYTHONPATH": str(REPO)})
    assert ended.returncode == 2, ended.stderr
    lines = ended.stderr.splitlines()
    assert len(lines) == len(hosts), ended.stderr
    assert all(line.startswith(f"ps_train: {host}: ") and line.endswith(f" [{code}]")
               for line, host in zip(lines, hosts)), ended.stderr
    assert not (tmp_path / "train").exists()


def test_on_three_machines_ctrl_c_and_a_cut_link_leave_nothing(launch, tmp_path):
    """Training crosses the network; after each end nothing is left on any of the machines."""
    sshd.require()
    namespaces.require()
    with namespaces.network(1, 2, 3) as network, sshd.SshServers(tmp_path / "ssh", 22) as servers:
        for number in (2, 3):
            servers.start(f"10.77.0.{number}", network.on(number))
        options = {"hosts": ("10.77.0.2", "10.77.0.3"), "before": network.on(1)}
        stopped = launch(servers, *ENDLESS, **options)
        stopped.wait_for_training()
        stopped.wait_for(lambda: " step " in log_of(stopped, "worker-1"), "worker 1 trains")
        stopped.process.send_signal(signal.SIGINT)
        if stopped.wait() != 130:
            stopped.fail("exit code")
        stopped.check_nothing_is_left_on_hosts()
        assert list(stopped.train_dir.glob("model.ckpt-[1-9]*.index")), "the chief has not saved"
        run = launch(servers, *ENDLESS, train_dir="train2", **options)
        run.wait_for_training()
        run.wait_for(lambda: " step " in log_of(run, "worker-1"), "worker 1 trains")
        network.run(3, "ip", "link", "set", "eth0", "down")
        if run.wait() != 138:
            run.fail("exit code")
        assert re.search(r"^worker:0 \| .* 10\.77\.0\.3 .*\[ssh_connection_lost\]$", run.output, re.MULTILINE)
        run.check_nothing_is_left_on_hosts()
