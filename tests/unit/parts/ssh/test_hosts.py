"""Other machines: hostfiles, the host of each task, and the commands of ssh; a shell here stands for a host."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shlex
import subprocess

import pytest

from ps_train.config.launch import parse_launch
from ps_train.launch import command_lines
from ps_train.launch.machines import machines_of
from ps_train.parts.ssh import connection, hosts, preflight
from ps_train.parts.ssh.connection import OutputFrame
from ps_train.parts.ssh.hosts import Host
from ps_train.runtime.reports import Failure, Progress
from tests.errors import raises

REPO = pathlib.Path(__file__).resolve().parents[4]
NAMES = ["ps:0", "ps:1", "worker:0", "worker:1", "worker:2"]
REMOTE = hosts.RemoteShell(["ssh", "-p", "24"], "/my dir", "/opt/py thon", {"A": "it's"})


def test_a_file_is_read_as_mpirun_reads_it(tmp_path):
    """Comments and empty lines are skipped, slots are optional, and a host named twice has the sum of its slots.

    The file may begin with a byte order mark, as an editor on Windows writes it.
    """
    path = tmp_path / "hosts"
    path.write_text("\ufeff# my machines\nnode1 slots=2\n\nme@node2.lan slots=1 address=10.0.0.2  # fast\n"
                    "node1 slots=3\nn3\n", encoding="utf-8")
    assert hosts.read_hosts(str(path)) == [
        Host("node1", 5, "node1"), Host("me@node2.lan", 1, "10.0.0.2"), Host("n3", None, "n3")]
    assert hosts.read_hosts("node1:2,me@node2") == [Host("node1", 2, "node1"), Host("me@node2", None, "node2")]


def test_a_file_in_the_home_folder_is_found(tmp_path, monkeypatch):
    """A shell leaves the ~ in --hosts=~/hosts; with the flags of other paths it was the home folder already."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "hosts").write_text("node1 slots=2\n")
    assert hosts.read_hosts("~/hosts", "/elsewhere") == [Host("node1", 2, "node1")]


@pytest.mark.parametrize(("value", "code", "quoted"), [
    ("a,", "host_malformed", "--hosts entry '': got ''"), ("a:x", "host_malformed", "slots='x'"),
    ("a:0", "host_malformed", "slots='0'"), ("-oProxyCommand=x", "host_malformed", "'-oProxyCommand=x'"),
    ("a b", "host_malformed", "'a b'"), ("a,a", "host_given_twice", "a is"), ("::1", "host_malformed", "'::1'"),
    ("a,[::1]:2", "host_malformed", "'[::1]:2'"), ("no/such/file", "hosts_unreadable", "'no/such/file'"),
])
def test_a_wrong_entry_is_named(value, code, quoted):
    """An option of ssh is no host either."""
    with raises(code) as caught:
        hosts.read_hosts(value)
    assert quoted in str(caught.value)


@pytest.mark.parametrize(("line", "code", "quoted"), [
    ("a slots=1 slots=2", "host_malformed", "line 1"), ("a cpus=2", "host_malformed", "'cpus=2'"),
    ("a address=;", "host_malformed", "address=';'"), ("#", "hosts_empty", "hosts"),
    ("a slots=1 address=b\na slots=2", "host_given_twice", "line 2: a is")])
def test_a_wrong_line_is_named(tmp_path, line, code, quoted):
    """With its number."""
    (tmp_path / "hosts").write_text(f"{line}\n")
    with raises(code) as caught:
        hosts.read_hosts(str(tmp_path / "hosts"))
    assert quoted in str(caught.value)


@pytest.mark.parametrize(("value", "placement", "logins"), [
    ("a,b", "round_robin", "ababa"), ("a:1,b", "round_robin", "abbbb"), ("a:2,b:3", "round_robin", "ababb"),
    ("a:3,b:9", "fill", "aaabb"), ("a,b,c,d,e,f", "round_robin", "abcde"),
])
def test_each_task_has_a_host(value, placement, logins):
    """In turn, or host by host; no host has more tasks than slots."""
    task_hosts = hosts.place_tasks(NAMES, hosts.read_hosts(value), placement)
    assert "".join(host.login for host in task_hosts) == logins


@pytest.mark.parametrize(("value", "placement", "code"), [
    ("a:2,b:2", "round_robin", "too_few_slots"), ("a,b:9", "fill", "slots_missing")])
def test_too_few_slots_are_refused(value, placement, code):
    """Before any connection."""
    with raises(code):
        hosts.place_tasks(NAMES, hosts.read_hosts(value), placement)


def test_a_folder_may_have_the_name_of_a_host(tmp_path, monkeypatch):
    """It is no list of hosts."""
    (tmp_path / "gpu1").mkdir()
    monkeypatch.chdir(tmp_path)
    assert hosts.read_hosts("gpu1") == [Host("gpu1", None, "gpu1")]


@pytest.mark.parametrize("value", ["localhost,b", "b,me@127.0.0.1:9"])
def test_localhost_is_no_address_for_others(value):
    """They would look for its tasks on themselves, until they time out; with all tasks there it is right."""
    all_hosts = hosts.read_hosts(value)
    with raises("loopback_address"):
        hosts.place_tasks(NAMES, all_hosts, "round_robin")
    local = [host for host in all_hosts if host.login != "b"]
    assert hosts.place_tasks(NAMES, local, "round_robin") == local * 5
    known = [dataclasses.replace(host, address=host.address if host.login == "b" else "a") for host in all_hosts]
    assert len(hosts.place_tasks(NAMES, known, "round_robin")) == 5


def test_arguments_survive_two_shells():
    """ssh gives the host's shell one text, which starts sh, which starts python."""
    command = REMOTE.ssh_command(Host("me@h", None, "h"), ["-c", "print('a  b')"])
    assert command[:3] == ["ssh", "-p", "24"]
    assert "BatchMode=yes" in command and command[-2] == "me@h"
    text = shlex.split(shlex.split(command[-1])[-1])
    assert text == ["cd", "/my dir", "&&", "env", "A=it's", "/opt/py thon", "-c", "print('a  b')"]


@pytest.mark.parametrize("environ", [{}, {"A": "1"}])
def test_a_path_may_begin_in_the_home_folder(tmp_path, environ):
    """That of the host: the local shell leaves `--remote_dir=~/x` as it is."""
    (tmp_path / "my dir").mkdir()
    (tmp_path / "my dir/python").symlink_to("/bin/echo")
    remote = hosts.RemoteShell(["ssh"], "~/my dir", "~/my dir/python", environ)
    ended = subprocess.run(["sh", "-c", f"{remote.typed(['~/a b'])} && pwd"], capture_output=True, text=True,
                           env={**os.environ, "HOME": str(tmp_path)})
    assert ended.stdout.splitlines() == ["~/a b", str(tmp_path / "my dir")], ended.stderr


@pytest.mark.parametrize("folder", ["~", "~/"])
def test_the_home_folder_itself_may_be_the_folder(tmp_path, folder):
    """It is no folder of the name `~`."""
    remote = hosts.RemoteShell(["ssh"], folder, "echo", {})
    ended = subprocess.run(["sh", "-c", f"{remote.typed([])} && pwd"], capture_output=True, text=True,
                           env={**os.environ, "HOME": str(tmp_path)})
    assert ended.stdout.splitlines() == ["", str(tmp_path)], ended.stderr


def test_a_home_folder_of_the_hosts_stays_theirs():
    """Other paths are those of this machine."""
    task, launch = parse_launch(["--hosts=h.txt", "--remote_dir=~/x", "--remote_python=~/p", "--log_dir=~/l"])
    remote = next(flags for flags in (launch, task) if hasattr(flags, "remote_dir"))
    assert (remote.remote_dir, remote.remote_python) == ("~/x", "~/p")
    assert launch.log_dir == os.path.expanduser("~/l") != "~/l"


def test_a_task_may_have_further_variables():
    """Such as its TF_CONFIG, in addition to those of all."""
    command = REMOTE.relay_command(Host("h", None, "h"), "ps:0", ["x"], 1.0, variables={"TF_CONFIG": '{"a": 1}'})
    text = shlex.split(shlex.split(command[-1])[-1])
    assert text[3:7] == ["env", "A=it's", 'TF_CONFIG={"a": 1}', "/opt/py thon"]


def test_the_environment_is_chosen():
    """TensorFlow's variables and PYTHONPATH, and what the flag names; never TF_CONFIG, nor Terraform's secrets."""
    here = {"TF_X": "1", "TF_CONFIG": "{}", "TF_VAR_password": "p", "PYTHONPATH": "a", "HOME": "h", "MINE": "m"}
    assert hosts.chosen_environment("MINE,NEW=a=b", here) == {
        "TF_X": "1", "PYTHONPATH": "a", "MINE": "m", "NEW": "a=b"}
    for flag, code in (("NONE", "variable_unset"), ("1=2", "flag_malformed")):
        with raises(code):
            hosts.chosen_environment(flag, here)
    for command in ("ssh '", " "):
        with raises("flag_malformed"):
            hosts.split_ssh_command(command)


def test_a_tilde_in_the_command_of_ssh_is_the_home_folder(monkeypatch):
    """ssh itself replaces it in -i, but not in -F, and nobody in the name of a program."""
    monkeypatch.setenv("HOME", "/home/me")
    assert hosts.split_ssh_command("~/bin/ssh -F ~/a.conf -o 'IdentityFile=~/key'") == [
        "/home/me/bin/ssh", "-F", "/home/me/a.conf", "-o", "IdentityFile=~/key"]


@pytest.mark.parametrize("frame", [
    OutputFrame("plain"), OutputFrame('{"exit_code": 3}'),
    OutputFrame("step 1", Progress(1, 2, float("nan"), 1.5, 2.5)),
    OutputFrame("ps_train: no", Failure(["no"])), OutputFrame("", exit_code=138)], ids=str)
def test_a_frame_arrives_as_it_was_sent(frame):
    """Also a line of output that looks like a frame."""
    assert repr(connection.unpack_frame(connection.pack_frame(frame).rstrip(b"\n"))) == repr(frame)


def test_other_output_is_a_line():
    """A shell's greeting, for example."""
    for text in ("Welcome!", "[1, 2]", '{"a": 1}', "7"):
        assert connection.unpack_frame(text.encode()) == OutputFrame(text)


@pytest.mark.parametrize(("lines", "code", "advice"), [
    (["me@h: Permission denied (publickey)."], "ssh_refused", "ssh is refused: "),
    (["ssh: connect to host h port 22: Connection timed out"], "host_unreachable", "it cannot be reached: "),
    (["(ModuleNotFoundError: No module named 'ps_train')"], "ps_train_missing", "no ps_train for /opt/py thon there: "),
    (["(ModuleNotFoundError: No module named 'ps_train.parts.ssh')"], "other_ps_train", "another version of ps_train "),
    (["sh: 1: cd: can't cd to /my dir"], "remote_path_missing", "no folder /my dir there: "),
    (["ps_train: odd"], "ssh_failed", "odd"),
    # The fault comes after warnings, and a line of ps_train needs no explanation.
    (["Warning: Identity file k not accessible: No such file or directory.", "me@h: Permission denied (publickey)."],
     "ssh_refused", "ssh is refused: "),
    (["bash: fortune: command not found", "python: No module named ps_train"], "ps_train_missing", "no ps_train for "),
    (["bash: fortune: command not found", "ps_train: no answer within 60 s"], "ssh_failed", "no answer within 60 s"),
])
def test_a_fault_of_a_host_is_explained(lines, code, advice):
    """With advice, and the message of ssh in brackets."""
    fault = preflight.explain_host_fault(["Welcome!", *lines], Host("me@h", None, "h"), REMOTE)
    assert fault.code == code and fault.startswith(advice)


def test_relative_paths_of_a_launch_are_those_of_its_folder(tmp_path, monkeypatch):
    """A program may change to another one while its training starts: the hosts, ssh and the remote folder stay."""
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    (tmp_path / "machines").mkdir()
    (tmp_path / "machines/all").write_text("node1\n")
    (tmp_path / "ssh").write_text('#!/bin/sh\nfor command; do :; done\nexec sh -c "$command"\n')
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.chdir("/")
    _, flags = parse_launch(["--hosts=machines/all", "--ssh_command=./ssh", "--num_ps=1", "--num_workers=1"])
    tasks = command_lines.task_list(flags)
    with machines_of(flags, tasks, [], 5.0, working_dir=str(tmp_path)) as machines:
        assert [place.address for place in machines.reserve()] == ["node1", "node1"]
        assert f"cd {tmp_path} && " in " ".join(machines.command("ps:0", []))
