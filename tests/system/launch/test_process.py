"""processes: held ports, children with log files, the order in which they end, the worst of exit codes."""

from __future__ import annotations

import collections
import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

from ps_train.launch import process as process_module
from ps_train.launch import supervision
from ps_train.launch.supervision import ClusterProcesses
from ps_train.runtime import signals
from ps_train.runtime.reports import Stage
from tests.children import DEADLINE_SECS, REPO, python, run_to_end, stopped_on_request, wait_until


def test_output_goes_raw_to_the_log_and_comes_back_as_lines(tmp_path):
    """stdout and stderr are kept byte for byte; of a redrawn line its last state is read; the last needs no break."""
    child = python(tmp_path, "worker:1", r"""
        import os
        os.write(1, b"one\r\n"); os.write(2, b"10%\r20%\n"); os.write(1, b"\xff end")
    """)
    run_to_end(child)
    assert list(child.new_lines()) == ["one", "20%", "\ufffd end"]
    assert list(child.new_lines()) == []
    assert (tmp_path / "worker-1.log").read_bytes() == b"one\r\n10%\r20%\n\xff end"


def test_of_a_line_that_is_redrawn_for_hours_one_state_is_kept(tmp_path):
    """Each look would copy all of it, and there are 20 in a second."""
    child = python(tmp_path, "worker:1", "import signal; signal.pause()")
    try:
        with open(tmp_path / "worker-1.log", "ab", buffering=0) as log:
            for written, lines, kept in ((b"one\n10%\r20%\r", ["one"], b"20%\r"), (b"\r30", [], b"30"),
                                         (b"%\r", [], b"30%\r"), (b"\ntwo\n", ["30%", "two"], b"")):
                log.write(written)
                assert list(child.new_lines()) == lines and child._unfinished_line == kept
                assert child.unfinished_line == kept.decode().rstrip("\r")
    finally:
        child.kill()
        child.close()


def test_a_log_of_an_earlier_run_is_kept_and_not_read_again(tmp_path):
    """A second run in the same folder appends."""
    (tmp_path / "ps-0.log").write_text("earlier\n")
    child = python(tmp_path, "ps:0", "print('now')")
    run_to_end(child)
    assert list(child.new_lines()) == ["now"]
    assert (tmp_path / "ps-0.log").read_text() == "earlier\nnow\n"


def test_the_reports_of_a_child_are_matched_with_its_lines_through_a_restart(tmp_path):
    """A report comes with the line that it was sent for; both lives write to the same file."""
    child = python(tmp_path, "worker:1", """
        import os, sys
        from ps_train.runtime import reports
        reports.connect()
        print("begins", flush=True)
        for what in ("evaluating", "resting"):
            stage = reports.Stage(os.getpid(), 2, what)
            reports.send(stage, [stage.format()])
            print("12:00:00", stage.format(), flush=True)
    """)
    for _ in range(2):
        run_to_end(child)
        stages = [Stage(child.pid, 2, what) for what in ("evaluating", "resting")]
        assert list(child.new_output()) == [
            ("begins", None), *((f"12:00:00 {stage.format()}", stage) for stage in stages)]
        child.restart()
    run_to_end(child)
    assert [path.name for path in tmp_path.iterdir()] == ["worker-1.log"]


@pytest.mark.parametrize(("code", "expected"), [
    ("pass", 0), ("raise SystemExit(2)", 2), ("import os; os.kill(os.getpid(), 9)", 137),
])
def test_exit_codes_are_those_of_a_shell(tmp_path, code, expected):
    """A child killed by signal n counts as 128 + n."""
    child = python(tmp_path, "child", code)
    run_to_end(child)
    assert child.exit_code == expected


@pytest.mark.parametrize(("codes", "expected"), [
    ([], 0), ([0, 0], 0), ([0, 143], 143), ([143, 138], 138), ([138, 143, 0], 138), ([137, 138], 137),
    ([138, 137], 138), ([139, 2], 2), ([138, 143, 1, 0], 1), ([2, 1], 2), ([1, 2], 1), ([143, 130], 130),
])
def test_worst(codes, expected):
    """Permanent above lost above stopped above done; of equals the first."""
    assert supervision.worst(codes) == expected


def test_watch_returns_when_all_are_done(tmp_path):
    """Nothing failed: an empty list, and everything was shown."""
    lines = []
    tasks = ClusterProcesses([python(tmp_path, "ps:0", "print(1)")], [python(tmp_path, "worker:0", "print(2)")])
    failed = supervision.watch(tasks, lambda: lines.extend(x for p in tasks.all for x in p.new_lines()), [])
    assert failed == []
    assert sorted(lines) == ["1", "2"]


def test_watch_names_the_first_that_fails_and_end_ends_the_others(tmp_path):
    """The others get SIGTERM."""
    ps = python(tmp_path, "ps:0", "import time; time.sleep(60)")
    worker = python(tmp_path, "worker:0", "raise SystemExit(7)")
    tasks = ClusterProcesses([ps], [worker])
    assert supervision.watch(tasks, lambda: None, []) == [worker]
    supervision.end(tasks, lambda: None, [])
    assert (ps.exit_code, worker.exit_code) == (143, 7)


def test_watch_names_the_task_that_failed_for_good_and_not_its_victim(tmp_path, monkeypatch):
    """A worker that ends because the chief's code fails may end before the chief."""
    monkeypatch.setattr(supervision, "_CAUSE_SECS", 60)  # on a busy machine, the chief may take seconds to begin
    victim = python(tmp_path, "worker:1", "raise SystemExit(138)")
    chief = python(tmp_path, "worker:0", "import time; time.sleep(0.5); raise SystemExit(1)")
    tasks = ClusterProcesses([python(tmp_path, "ps:0", "import time; time.sleep(60)")], [chief, victim])
    assert supervision.watch(tasks, lambda: None, []) == [chief]
    assert victim.exit_code == 138
    supervision.end(tasks, lambda: None, [])


def test_watch_names_the_first_of_those_that_were_lost(tmp_path, monkeypatch):
    """Where none of them fails for good within a moment."""
    monkeypatch.setattr(supervision, "_CAUSE_SECS", 0.5)
    lost = python(tmp_path, "worker:0", "raise SystemExit(137)")
    gate = tmp_path / "gate"
    later = python(tmp_path, "worker:1", f"""
        import os, time
        while not os.path.exists({str(gate)!r}):
            time.sleep(0.02)
        raise SystemExit(138)
    """)
    tasks = ClusterProcesses([python(tmp_path, "ps:0", "import time; time.sleep(60)")], [lost, later])

    def open_gate():
        if lost.exit_code is not None:
            gate.touch()

    assert supervision.watch(tasks, open_gate, []) == [lost]
    supervision.end(tasks, lambda: None, [])


def test_a_worker_that_did_not_hear_of_a_stop_is_not_waited_for(tmp_path, monkeypatch):
    """It had not begun when the ps ended; that is no failure."""
    monkeypatch.setattr(supervision, "GRACE_SECS", 0.2)
    ps = stopped_on_request(tmp_path, "ps:0")
    worker = python(tmp_path, "worker:0", "import time; time.sleep(60)")
    tasks = ClusterProcesses([ps], [worker])
    assert supervision.watch(tasks, lambda: collections.deque(ps.new_output(), maxlen=0), []) == []
    assert ps.exit_code == 143 and worker.exit_code is None
    supervision.end(tasks, lambda: None, [])


def test_a_ps_that_stays_after_the_workers_is_overdue(tmp_path, monkeypatch):
    """After the grace period `watch` returns it, still running."""
    monkeypatch.setattr(supervision, "GRACE_SECS", 0.2)
    ps = python(tmp_path, "ps:0", "import time; time.sleep(60)")
    tasks = ClusterProcesses([ps], [python(tmp_path, "worker:0", "pass")])
    assert supervision.watch(tasks, lambda: None, []) == [ps]
    assert ps.exit_code is None
    supervision.end(tasks, lambda: None, [])


def test_the_ps_is_asked_to_stop_only_when_the_workers_have_ended(tmp_path):
    """So the chief can still save: here each writes the time at which it ended."""
    code = """
        import signal, time
        def stop(*_):
            time.sleep({delay})
            print(time.monotonic())
            raise SystemExit(143)
        signal.signal(signal.SIGTERM, stop)
        print("ready")
        time.sleep(60)
    """
    tasks = ClusterProcesses([python(tmp_path, "ps:0", code.format(delay=0))],
                  [python(tmp_path, "worker:0", code.format(delay=0.5))])
    lines = {process.name: [] for process in tasks.all}

    def show():
        for process in tasks.all:
            lines[process.name] += process.new_lines()

    def all_ready():
        show()
        return all(lines.values())

    wait_until(all_ready, "both children are ready")
    supervision.end(tasks, show, [signal.SIGTERM])
    assert float(lines["worker:0"][1]) < float(lines["ps:0"][1])


@pytest.mark.parametrize("signals", [[], [signal.SIGINT, signal.SIGINT]], ids=["after the grace", "at a second signal"])
def test_what_ignores_sigterm_is_killed(tmp_path, monkeypatch, signals):
    """After the grace period, or at once when a second signal comes."""
    monkeypatch.setattr(supervision, "GRACE_SECS", 0.3 if not signals else 60)
    stubborn = python(tmp_path, "worker:0", """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready")
        time.sleep(60)
    """)
    seen = []

    def is_ready():
        seen.extend(stubborn.new_lines())
        return seen

    wait_until(is_ready, "the child is ready")
    supervision.end(ClusterProcesses([], [stubborn]), lambda: None, signals)
    assert stubborn.exit_code == 137


def test_who_has_more_time_to_stop_gets_it(tmp_path, monkeypatch):
    """The grace period is the caller's where it has one."""
    monkeypatch.setattr(supervision, "GRACE_SECS", 0.1)
    slow = python(tmp_path, "worker:0", """
        import signal, time
        def stop(*_):
            time.sleep(1)
            raise SystemExit(143)
        signal.signal(signal.SIGTERM, stop)
        print("ready")
        time.sleep(60)
    """)
    seen = []

    def is_ready():
        seen.extend(slow.new_lines())
        return seen

    wait_until(is_ready, "the child is ready")
    supervision.end(ClusterProcesses([], [slow]), lambda: None, [signal.SIGTERM], 30.0)
    assert slow.exit_code == 143


def test_a_ps_is_asked_twice(tmp_path, monkeypatch):
    """It may still wait for a worker that was killed; a worker is asked once, as it saves."""
    monkeypatch.setattr(supervision, "_ALONE_SECS", 0.1)
    code = """
        import signal, time
        asked = []
        signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
        print("ready")
        start_secs = time.monotonic()
        while len(asked) < 2 and not (asked and time.monotonic() > start_secs + {secs}):
            time.sleep(0.01)
        raise SystemExit(142 + len(asked))
    """
    ps = python(tmp_path, "ps:0", code.format(secs=60))
    worker = python(tmp_path, "worker:0", code.format(secs=1))
    seen = []

    def are_ready():
        seen.extend([*ps.new_lines(), *worker.new_lines()])
        return len(seen) == 2

    wait_until(are_ready, "both children are ready")
    supervision.end(ClusterProcesses([ps], [worker]), lambda: None, [signal.SIGTERM], 30.0)
    assert (ps.exit_code, worker.exit_code) == (144, 143)


def test_signals_are_noted_and_the_old_handlers_come_back():
    """Inside, SIGTERM is an entry in a list; outside, what it was."""
    before = signal.getsignal(signal.SIGTERM)
    with supervision.noted_signals() as noted:
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: noted, "the signal is noted")
    assert noted == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("echo_secs", "sent", "noted"), [
    (60, ["SIGTERM", "SIGHUP"], ["SIGTERM"]),  # systemd, at the end of a session
    (60, ["SIGHUP", "SIGTERM"], ["SIGHUP"]),  # the same: Python handles the lower number first
    (60, ["SIGHUP", "SIGHUP"], ["SIGHUP"]),
    (60, ["SIGTERM", "SIGTERM"], ["SIGTERM"]),
    (60, ["SIGINT", "SIGINT"], ["SIGINT", "SIGINT"]),
    (0, ["SIGTERM", "SIGTERM"], ["SIGTERM", "SIGTERM"]),
    (0, ["SIGINT", "SIGHUP", "SIGTERM"], ["SIGINT", "SIGTERM"]),
])
def test_a_signal_that_follows_from_the_first_is_not_a_second(monkeypatch, echo_secs, sent, noted):
    """It would end the tasks at once, and the chief would save nothing; the tasks have the same rule."""
    monkeypatch.setattr(signals, "_ECHO_SECS", echo_secs)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    try:
        with supervision.noted_signals() as found:
            for name in sent:
                signal.raise_signal(signal.Signals[name])
    finally:
        signal.signal(signal.SIGHUP, before)
    assert [signal.Signals(number).name for number in found] == noted


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills children with their parent")
def test_children_die_with_a_launcher_that_is_killed(tmp_path):
    """Also when nothing in the launcher can run any more (SIGKILL)."""
    launcher = subprocess.Popen([sys.executable, "-c", textwrap.dedent(f"""
        import os, sys, time
        from ps_train.launch.process import Process
        command = [sys.executable, "-c", "import os, time; print(os.getpid()); time.sleep(600)"]
        process = Process("child", command, {str(tmp_path / "child.log")!r}, os.environ)
        time.sleep(600)
    """)], cwd=REPO)
    log = tmp_path / "child.log"
    wait_until(lambda: log.exists() and log.read_text().endswith("\n"), "the child has printed its process id")
    launcher.kill()
    launcher.wait(DEADLINE_SECS)
    child = int(log.read_text())
    wait_until(lambda: not os.path.exists(f"/proc/{child}") or _is_zombie(child), "the end of the child")


def _is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_child_that_writes_much_does_not_hold_the_launcher(tmp_path):
    """A call reads a piece of the log while the child runs, which may write faster than its lines are shown."""
    count = 400_000
    child = python(tmp_path, "worker:1", f"""
        import time
        print("some line\\n" * {count}, end="", flush=True)
        time.sleep(600)
    """)
    wait_until(lambda: (tmp_path / "worker-1.log").stat().st_size == 10 * count, "all is written")
    counts = [sum(1 for _ in child.new_lines()) for _ in range(5)]
    child.kill()
    assert 0 < counts[0] < count / 2 and sum(counts) == count and child.exit_code == 137


def test_the_processes_of_a_killed_child_end_with_it(tmp_path):
    """Those of its dataset would keep its port, so that its restart would fail."""
    child = python(tmp_path, "worker:1", """
        import os, subprocess, sys
        theirs = subprocess.Popen([sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(600)"],
                                  stdout=subprocess.PIPE)
        theirs.stdout.readline()
        print(theirs.pid, flush=True)
        os.kill(os.getpid(), 9)
    """)
    run_to_end(child)
    (line,) = child.new_lines()
    # A killed process may wait for one that collects it.
    wait_until(lambda: not os.path.exists(f"/proc/{line}") or "State:\tZ" in pathlib.Path(
        f"/proc/{line}/status").read_text(), "its process has ended")


def test_what_a_child_that_ends_by_itself_has_started_goes_on(tmp_path):
    """A callback may start an upload that outlives its task."""
    go = tmp_path / "go"
    os.mkfifo(go)
    child = python(tmp_path, "worker:1", f"""
        import subprocess
        subprocess.Popen(["sh", "-c", "cat {go} > {tmp_path}/uploaded"])
    """)
    run_to_end(child)
    go.write_text("all")
    wait_until(lambda: (tmp_path / "uploaded").exists() and (tmp_path / "uploaded").read_text() == "all",
               "the upload has ended")


def test_a_child_that_a_hanging_file_system_holds_is_given_up(tmp_path, monkeypatch):
    """Not even SIGKILL ends it at once."""
    monkeypatch.setattr(process_module, "_KILL_SECS", 0.1)
    child = python(tmp_path, "ps:0", "import time; time.sleep(600)")
    with monkeypatch.context() as patched:  # the real one ends at once
        patched.setattr(child._child, "poll", lambda: None)
        child.kill()
    assert child.exit_code == 137
    assert child._child.wait(DEADLINE_SECS) == -signal.SIGKILL


def test_a_log_that_was_cut_off_is_read_on(tmp_path):
    """As by logrotate with copytruncate: what comes then is shown."""
    go = tmp_path / "go"
    os.mkfifo(go)
    child = python(tmp_path, "worker:1", f"""
        print("a first line", flush=True)
        open({str(go)!r}).read()
        print("next", flush=True)
    """)
    log = tmp_path / "worker-1.log"
    wait_until(lambda: log.stat().st_size, "the first line is written")
    assert list(child.new_lines()) == ["a first line"]
    os.truncate(log, 0)
    go.write_text("on")
    run_to_end(child)
    assert list(child.new_lines()) == ["next"]
