"""Ways to keep others away from the servers, on machines of their own (network namespaces): docs/security.md.

In each the cluster trains across its machines' own addresses, and another machine of the same network is refused.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys

import pytest

from tests import namespaces, processes
from tests.processes import REPO

PS, WORKER, FOREIGNER = 1, 2, 3
NETWORK = REPO / "deploy/network"
FLAGS = ["--model=tiny", "--dataset=tiny", "--batch_size=16", "--log_steps=20", "--train_steps=100"]


@pytest.fixture
def machines(request, tmp_path):
    """Three machines of one network: that of the ps, that of the worker, and one that has no business with them."""
    namespaces.require(*getattr(request, "param", ()))
    shutil.copy(REPO / "tests/plugins/tiny.py", tmp_path)
    with namespaces.network(PS, WORKER, FOREIGNER) as network:
        yield network


class Pair:
    """A ps and a worker, each on its machine, up to a gate in the worker's input."""

    def __init__(self, group, tmp_path, machines, addresses):
        """Starts them; `addresses` has --ps_hosts and --worker_hosts as the ps and as the worker are told them."""
        self.group, self.gate = group, tmp_path / "gate"
        for (name, number), (ps_hosts, worker_hosts) in zip((("ps", PS), ("worker", WORKER)), addresses):
            group.start(name, [*FLAGS, f"--job_name={name}", "--task_index=0", f"--ps_hosts={ps_hosts}",
                               f"--worker_hosts={worker_hosts}", f"--train_dir={tmp_path}/train",
                               f"--params=gate={self.gate},gate_batch=30"], cwd=tmp_path, before=machines.on(number))
        group.wait_for_line("worker", "examples/s")

    def train_on(self):
        """Lets the worker train to the end; both must end well."""
        self.gate.with_name("gate.0").touch()
        assert self.group.wait() == {"ps": 0, "worker": 0}


@pytest.mark.parametrize("machines", [["nft"]], indirect=True)
def test_a_firewall_rule_keeps_a_foreign_machine_away(machines, start_process, tmp_path):
    """deploy/network/firewall.nft, loaded on both machines while they train, twice; without it everybody gets in."""
    hosts = ("10.77.0.1:2222", "10.77.0.2:2223")
    pair = Pair(start_process, tmp_path, machines, [hosts, hosts])
    assert machines.reaches(FOREIGNER, "10.77.0.1", 2222) and machines.reaches(FOREIGNER, "10.77.0.2", 2223)
    for number in (PS, WORKER, PS, WORKER):
        machines.run(number, "nft", "-f", str(NETWORK / "firewall.nft"))
    assert machines.reaches(WORKER, "10.77.0.1", 2222) and machines.reaches(PS, "10.77.0.2", 2223)
    assert not machines.reaches(FOREIGNER, "10.77.0.1", 2222)
    assert not machines.reaches(FOREIGNER, "10.77.0.2", 2223)
    pair.train_on()


def test_a_namespace_of_its_own_keeps_everybody_away(start_process, tmp_path):
    """A whole cluster on one machine, where there is loopback and nothing else; outside its ports do not exist."""
    namespaces.require()
    shutil.copy(REPO / "tests/plugins/tiny.py", tmp_path)
    ports = processes.free_ports(2)
    with namespaces.network(PS, FOREIGNER) as network:
        network.run(PS, "ip", "link", "del", "eth0")
        told = [f"--ps_hosts=localhost:{ports[0]}", f"--worker_hosts=localhost:{ports[1]}", *FLAGS,
                f"--train_dir={tmp_path}/train", f"--params=gate={tmp_path}/gate,gate_batch=30"]
        for job in ("ps", "worker"):
            start_process.start(job, [*told, f"--job_name={job}", "--task_index=0"], cwd=tmp_path,
                                before=network.on(PS))
        start_process.wait_for_line("worker", "examples/s")
        assert all(network.reaches(PS, "localhost", port) for port in ports)
        assert not any(network.reaches(FOREIGNER, host, port) for host in ("localhost", "10.77.0.1") for port in ports)
        assert not any(processes.is_open(port) for port in ports)
        (tmp_path / "gate.0").touch()
        assert start_process.wait() == {"ps": 0, "worker": 0}


@contextlib.contextmanager
def tunnels(machines, folder):
    """Runs stunnel with the configurations of deploy/network on both machines."""
    subprocess.run([NETWORK / "make_certificates.sh", folder], check=True, capture_output=True)
    running = []
    try:
        for number, name in ((PS, "ps"), (WORKER, "worker")):
            with open(folder / f"{name}.log", "wb") as log:
                command = [*machines.on(number), "stunnel", str(NETWORK / f"stunnel-{name}.conf")]
                running.append(subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT))
        yield
        assert [process.poll() for process in running] == [None, None], "a tunnel has ended"
    finally:
        for process in running:
            process.terminate()
            process.wait(10)


@pytest.mark.parametrize("machines", [["stunnel", "openssl", "nft"]], indirect=True)
def test_a_tls_tunnel_lets_in_who_has_a_certificate_of_the_cluster(machines, start_process, tmp_path):
    """Each task is told the tunnels' addresses in place of the others'; without a certificate nobody gets through."""
    for number in (PS, WORKER):
        machines.run(number, "nft", "-f", str(NETWORK / "tunnel-only.nft"))
    with tunnels(machines, tmp_path / "certificates"):
        pair = Pair(start_process, tmp_path, machines, [("localhost:2222", "localhost:12223"),
                                                        ("localhost:12222", "localhost:2223")])
        for number, host, port, tunnel in ((WORKER, "10.77.0.1", 2222, 3222), (PS, "10.77.0.2", 2223, 3223)):
            assert not machines.reaches(FOREIGNER, host, port) and not machines.reaches(number, host, port)
            assert machines.reaches(FOREIGNER, host, tunnel), "the test would show nothing"
            assert not is_answered(machines, host, tunnel)
            assert is_answered(machines, host, tunnel, tmp_path / "certificates")
        pair.train_on()


_GREET = """
import socket, ssl, sys
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
if sys.argv[3:]:
    context.load_cert_chain(f"{sys.argv[3]}/task.pem", f"{sys.argv[3]}/task.key")
with context.wrap_socket(socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)) as server:
    server.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    sys.exit(not server.recv(9))
"""


def is_answered(machines, host, port, *certificates):
    """Tells whether the foreign machine gets an answer of the gRPC server behind a tunnel to its greeting."""
    greeted = machines.run(FOREIGNER, sys.executable, "-c", _GREET, host, str(port), *map(str, certificates),
                           check=False)
    return greeted.returncode == 0
