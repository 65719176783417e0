"""`ps_train status`, `save` and `stop` on the blackboard of a server in this process."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shlex
import sys
import tempfile
import threading

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.config.folders import local_folder
from ps_train.coordination import blackboard
from ps_train.coordination.state import State
from ps_train.errors import ClusterLostError, ConfigError, TrainingEndedError
from ps_train.launch import launching
from ps_train.parts.control import asking, looking
from ps_train.parts.control import verb as control_flags
from ps_train.parts.control.requests import ClientService, ControlBoard
from ps_train.runtime import logs, waits
from ps_train.runtime.threads import Call
from ps_train.storage import folder_lock, run_record
from ps_train.tasks import setup
from tests import processes
from tests.children import wait_until
from tests.errors import raises
from tests.tensorflow_mode import tf

_ASK = {"status": (control_flags.StatusConfig, asking.print_status),
        "save": (control_flags.ControlConfig, asking.save_now), "stop": (control_flags.ControlConfig, asking.stop_all)}


@pytest.mark.parametrize("verb", _ASK)
def test_another_training_at_the_same_addresses_is_not_asked(tmp_path, start_servers, verb):
    """The record stays in the folder when a training has ended, and the next one gets the same ports."""
    ps = start_servers(1, 1).view("ps", 0).ps[0]
    (tmp_path / "cluster.json").write_text(json.dumps({
        "ps": {"0": ps.address}, "is_elastic": False, "train_dir": str(tmp_path), "is_launched": False,
        "folder": str(tmp_path), "command": []}))
    form, ask = _ASK[verb]
    with contextlib.closing(ControlBoard(ps)) as board:
        board.write_about({"train_dir": "/other", "heartbeat_secs": 5.0})
        with raises("another_training") as caught:
            ask(control_flags.parse_control([f"--train_dir={tmp_path}"], verb, form), threading.Event())
        assert f"{ps.address} now serves the one in /other" in str(caught.value)
        assert not board.is_stop_requested() and board.read().num_saves == 0


def _ended_run(folder):
    """Leaves what a training leaves that has finished at step 9."""
    (folder / "cluster.json").write_text(json.dumps({
        "ps": {"0": f"localhost:{processes.free_ports(1)[0]}"}, "is_elastic": False, "train_dir": str(folder),
        "is_launched": True, "folder": str(folder), "command": [], "train_steps": 9, "model": "softmax"}))
    (folder / "journal.jsonl").write_text("".join(json.dumps({"time": 1.0, **event}) + "\n" for event in (
        {"event": "start", "run": {"train_steps": 9}}, {"event": "end", "why": "x", "step": 9})))


@pytest.mark.parametrize("verb", _ASK)
def test_a_launch_whose_chief_has_not_started_is_not_the_run_before(tmp_path, capsys, verb):
    """It prepares: `status` says so, and `save` and `stop` reach nobody. With the chief's start, the mark says no more.

    Nor does one that a killed launch has left.
    """
    _ended_run(tmp_path)
    form, ask = _ASK[verb]
    config = control_flags.parse_control(
        [f"--train_dir={tmp_path}", *(["--json"] if verb == "status" else [])], verb, form)
    with launching.marked(str(tmp_path)):
        if verb == "status":
            ask(config, threading.Event())
            status = json.loads(capsys.readouterr().out)
            assert (status["state"], status["step"], status["ps"], status["model"]) == ("starting", None, [], None)
        else:
            with raises("training_starting", kind=ClusterLostError):
                ask(config, threading.Event())
        with open(tmp_path / "journal.jsonl", "a", encoding="utf-8") as journal:
            journal.write(json.dumps({"time": 2.0, "event": "start", "run": {"train_steps": 99}}) + "\n")
        assert not launching.is_launching(str(tmp_path))
    _ended_run(tmp_path)
    assert not (tmp_path / launching.MARK_NAME).exists()
    dead = json.dumps({**json.loads(folder_lock.lock_text("", "launch", 0)), "start": "0"})
    (tmp_path / launching.MARK_NAME).write_text(json.dumps({"holder": dead, "num_starts": 1}))
    ask(config, threading.Event())
    assert "finished" in capsys.readouterr().out


def test_a_new_folder_gets_no_mark(tmp_path):
    """No run before is in it, and the launch may yet be refused."""
    for folder in ("", str(tmp_path), str(tmp_path / "new")):
        with launching.marked(folder):
            assert not [*tmp_path.iterdir()] and not launching.is_launching(folder)


@pytest.mark.parametrize("about", [{"train_dir": "/other", "heartbeat_secs": 5.0}, {}, None],
                         ids=["runs", "starts", "has no blackboard yet"])
@pytest.mark.parametrize("verb", _ASK)
def test_an_ended_training_is_reported_while_another_has_its_addresses(tmp_path, start_servers, capsys, verb, about):
    """Also while that one starts, before its chief has named its folder: it gets no request."""
    cluster = start_servers(1, 1)
    ps = cluster.view("ps", 0).ps[0]
    (tmp_path / "cluster.json").write_text(json.dumps({
        "ps": {"0": ps.address}, "is_elastic": False, "train_dir": str(tmp_path), "is_launched": False,
        "folder": str(tmp_path), "command": []}))
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps({"time": 1.0, **event}) + "\n" for event in (
        {"event": "start", "run": {"train_steps": 9}}, {"event": "end", "why": "x", "step": 9})))
    form, ask = _ASK[verb]
    with contextlib.closing(ControlBoard(ps)) as board:
        if about is None:
            tf.Session.reset(cluster.target("ps", 0))
        if about:
            board.write_about(about)
        ask(control_flags.parse_control([f"--train_dir={tmp_path}"], verb, form), threading.Event())
        if about is not None:
            assert not board.is_stop_requested() and board.read().num_saves == 0
    output = capsys.readouterr().out
    does_not_run = f"the training in {tmp_path} does not run: finished at step 9"
    assert output.startswith("finished: step 9" if verb == "status" else does_not_run)


def test_metrics_that_are_no_numbers_are_texts_in_json(tmp_path, capsys):
    """JSON has neither NaN nor infinity, and jq and the parsers of other languages refuse the whole line."""
    (tmp_path / "cluster.json").write_text(json.dumps({
        "ps": {"0": "127.0.0.1:1"}, "is_elastic": False, "train_dir": str(tmp_path), "is_launched": False,
        "folder": str(tmp_path), "command": []}))
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps({"time": 1.0, **event}) + "\n" for event in (
        {"event": "start", "run": {"train_steps": 9}},
        {"event": "end", "why": "x", "step": 9, "metrics": {"auc": math.nan, "loss": -math.inf, "accuracy": 0.5}})))
    asking.print_status(control_flags.parse_control([f"--train_dir={tmp_path}", "--json"], "status",
                                                    control_flags.StatusConfig), threading.Event())
    status = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert status["metrics"] == {"auc": "nan", "loss": "-inf", "accuracy": 0.5}


@pytest.mark.parametrize(("state", "changed"), [
    ("running", {}), ("lost", {"start": "1"}), ("unknown", {"machine": "another"}), ("ended", None)])
@pytest.mark.parametrize("name", ["ckpt-00000050.keras", "ckpt-00000050.manifest.json"], ids=["here", "in a store"])
def test_status_of_a_keras_training_is_what_its_folder_says(tmp_path, capsys, name, state, changed):
    """Of a store, the verb fetches the manifest in place of the checkpoint. `save` and `stop` are refused."""
    (tmp_path / "training.json").write_text(json.dumps({"model": "net", "dataset": "digits"}))
    for checkpoint in (name, name.replace("50", "09")):
        (tmp_path / checkpoint).touch()
    if changed is not None:
        holder = {**json.loads(folder_lock.lock_text("noon", "token", 0)), **changed}
        (tmp_path / "training.lock").write_text(json.dumps(holder))
    flags = [f"--train_dir={tmp_path}", "--json"]
    with contextlib.ExitStack() as stack:
        if state == "lost":
            error = stack.enter_context(raises("training_ended", kind=TrainingEndedError))
        asking.print_status(control_flags.parse_control(flags, "status", control_flags.StatusConfig), threading.Event())
    status = json.loads(capsys.readouterr().out)
    assert (status["state"], status["step"], status["model"], status["dataset"]) == (state, 50, "net", "digits")
    assert status["checkpoint"] == f"{tmp_path}/ckpt-00000050.keras"
    assert state != "lost" or error.value.exit_code == 138
    for verb in ("save", "stop"):
        with raises("training_takes_no_requests"):
            _ASK[verb][1](control_flags.parse_control(flags[:1], verb), threading.Event())
    with raises("command_unknown"):
        asking.print_resume(control_flags.parse_control(flags[:1], "resume"))


def test_the_paths_in_json_are_absolute(tmp_path, capsys, monkeypatch):
    """A program that reads them may have another working directory."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "training.json").write_text(json.dumps({"model": "net", "dataset": "digits"}))
    (tmp_path / "run" / "ckpt-00000050.keras").touch()
    monkeypatch.chdir(tmp_path)
    asking.print_status(control_flags.parse_control(["--train_dir=run", "--json"], "status",
                                                    control_flags.StatusConfig), threading.Event())
    status = json.loads(capsys.readouterr().out)
    assert (status["train_dir"], status["checkpoint"]) == (f"{tmp_path}/run", f"{tmp_path}/run/ckpt-00000050.keras")


def test_status_of_a_training_of_which_only_the_lock_is_there(tmp_path, capsys):
    """Nothing else is in a store until the first upload."""
    (tmp_path / "training.lock").write_bytes(folder_lock.lock_text("noon", "token", 0))
    asking.print_status(control_flags.parse_control([f"--train_dir={tmp_path}"], "status", control_flags.StatusConfig),
                        threading.Event())
    assert capsys.readouterr().out.startswith("running: step unknown\n")


def test_a_folder_that_may_not_be_read_is_one_line(tmp_path, monkeypatch, caplog):
    """As that of another user, who lets nobody read it; what the user may do about it is in the line."""
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    (tmp_path / "training.lock").touch()
    monkeypatch.setattr(folder_lock, "read_lock", refuse)
    config = control_flags.parse_control([f"--train_dir={tmp_path}"], "status", control_flags.StatusConfig)
    for ask in (lambda: asking.print_status(config, threading.Event()), lambda: asking.print_resume(config)):
        with raises("run_record_unreadable", kind=ConfigError) as caught:
            ask()
        assert f"cannot read {tmp_path}/training.lock: Permission denied" in str(caught.value)
    assert not caplog.messages  # nothing is said of what a training would do with the file


def test_a_launch_whose_chief_has_written_nothing_here_can_be_resumed(tmp_path, capsys):
    """It ended before that, or it is on a host of --hosts that does not share the folder."""
    run_record.write_launch(str(tmp_path), ["launch", "--hosts=node1,node2"])
    asking.print_resume(control_flags.parse_control([f"--train_dir={tmp_path}"], "resume"))
    assert capsys.readouterr().out == f"cd {shlex.quote(os.getcwd())}\nps_train launch --hosts=node1,node2\n"


def test_the_command_of_a_training_that_runs_is_not_that_of_a_lost_one(tmp_path, start_servers, capsys):
    """Its journal has no end, as one whose chief was killed; the latter's ps, or another training's, do not answer."""
    ps = start_servers(1, 1).view("ps", 0).ps[0]
    (tmp_path / "cluster.json").write_text(json.dumps({
        "ps": {"0": ps.address}, "is_elastic": False, "train_dir": str(tmp_path), "is_launched": False,
        "folder": str(tmp_path), "command": ["--seed=1"]}))
    (tmp_path / "journal.jsonl").write_text(json.dumps({"time": 1.0, "event": "start", "run": {}}) + "\n")
    with contextlib.closing(ControlBoard(ps)) as board:
        for train_dir, comment in ((str(tmp_path), f"# {ps} accepts connections, so the training may still run: "),
                                   ("/other", "# lost: its journal has no end")):
            board.write_about({"train_dir": train_dir})
            asking.print_resume(control_flags.parse_control([f"--train_dir={tmp_path}"], "resume"))
            _, command, line, *_ = capsys.readouterr().out.splitlines()
            assert command.startswith("ps_train --seed=1") and line.startswith(comment)
    with (tmp_path / "journal.jsonl").open("a") as file:  # as where --existing_servers stay
        file.write(json.dumps({"time": 2.0, "event": "end", "why": "BlackboardError: ps:0 was lost"}) + "\n")
    with contextlib.closing(ControlBoard(ps)) as board:
        board.write_about({"train_dir": str(tmp_path)})
        asking.print_resume(control_flags.parse_control([f"--train_dir={tmp_path}"], "resume"))
    [reason, place] = capsys.readouterr().out.splitlines()[2:4]
    assert "ps:0 was lost" in reason and "accepts connections" in place


@pytest.mark.parametrize("flags", [["--train_dir=run", "--seed=1"], ["--train_dir={there}/run"], []],
                         ids=["relative", "absolute", "no flag"])
def test_a_training_whose_folder_was_moved_is_continued_where_it_is_now(tmp_path, capsys, flags):
    """Issue: the command had the earlier folder, so it began again there, and `status` named it."""
    there, here = tmp_path / "work", tmp_path / "moved"
    (there / "run").mkdir(parents=True)
    command = ["--job_name=worker", *(flag.format(there=there) for flag in flags)]
    (there / "run" / "cluster.json").write_text(json.dumps({
        "ps": {"0": "127.0.0.1:1"}, "is_elastic": False, "train_dir": str(there / "run"), "is_launched": False,
        "folder": str(there), "command": command, "model": "m", "dataset": "d"}))
    (there / "run" / "journal.jsonl").write_text("".join(json.dumps({"time": 1.0, **event}) + "\n" for event in (
        {"event": "start", "run": {"train_steps": 9}}, {"event": "end", "why": "x", "step": 9})))

    def resume(folder):
        asking.print_resume(control_flags.parse_control([f"--train_dir={folder}"], "resume"))
        return capsys.readouterr().out.splitlines()

    (tmp_path / "link").symlink_to(there)
    for same in (there / "run", tmp_path / "link" / "run"):
        assert resume(same)[:2] == [f"cd {there}", f"ps_train {shlex.join(command)}"]
    (there / "run").rename(here)
    _, line, comment, *_ = resume(here)
    others = [word for word in command if not word.startswith("--train_dir=")]
    assert shlex.split(line) == ["ps_train", *others, f"--train_dir={here}"]
    assert comment.startswith("# ") and "run; --train_dir is where" in comment
    asking.print_status(control_flags.parse_control([f"--train_dir={here}", "--json"], "status",
                                                    control_flags.StatusConfig), threading.Event())
    assert json.loads(capsys.readouterr().out)["train_dir"] == str(here)


@pytest.mark.parametrize("is_fetched", [True, False])
def test_a_training_in_a_store_is_continued_there(tmp_path, capsys, monkeypatch, is_fetched):
    """Also if the folder is given in which it worked on this machine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    url = "s3://bucket/run"
    folder = str(tmp_path / "fetched") if is_fetched else local_folder(url)
    run_record.write_launch(folder, ["launch", f"--train_dir={url}"])
    with logs.naming(folder, f"{url}/") if is_fetched else contextlib.nullcontext():
        asking.print_resume(control_flags.parse_control([f"--train_dir={folder}"], "resume"))
    assert capsys.readouterr().out.splitlines()[1:] == [f"ps_train launch --train_dir={url}"]


def test_the_addresses_of_an_elastic_training_are_enough(capsys):
    """Its ps knows itself by another name, and a client that knows no folder is not told of it."""
    address = f"localhost:{processes.free_ports(1)[0]}"
    view = Cluster("ps", 0, {"ps": {0: address}, "worker": {}}, is_elastic=True)
    with contextlib.closing(blackboard.for_ps(setup.start(view, num_gpus=0), view)) as board:
        board.create()
        config = control_flags.parse_control([f"--ps_hosts={address}"], "status", control_flags.StatusConfig)
        asking.print_status(config, threading.Event())
        assert capsys.readouterr().out.startswith("starting: step 0")
        looking.ask_training(looking.find_place("", address), lambda requests: requests.ask_to_stop())
        assert board.is_stop_requested()


def test_what_a_client_makes_itself_is_not_part_of_the_time_for_an_answer(start_servers, monkeypatch):
    """Issue: a client that needed 2.5 s to make its graphs, on a busy machine, had no answer however often it asked."""
    ps = start_servers(1, 1).view("ps", 0).ps[0]
    made, bounded = [], waits.bounded

    def noting(call, timeout_secs, awaited):
        made.extend(["asked"] if timeout_secs == looking.ANSWER_SECS else [])
        return bounded(call, timeout_secs, awaited)

    def make(kind):
        return lambda *args, **kwargs: made.append(kind.__name__) or kind(*args, **kwargs)

    monkeypatch.setattr(waits, "bounded", noting)
    for kind in (ControlBoard, blackboard.Blackboard):
        monkeypatch.setattr(looking, kind.__name__, make(kind))
    assert looking.look(looking.TrainingPlace([ps], "", False, {})).snapshot.state == State.IDLE
    assert made == ["ControlBoard", "asked", "Blackboard", "asked"]


def test_a_stop_reaches_each_ps_though_only_one_is_named(start_servers):
    """The others would serve on without any worker, and end with 138 after --idle_timeout_secs."""
    first, second = start_servers(2, 1).view("worker", 0).ps
    config = control_flags.parse_control([f"--ps_hosts={first.address}", "--timeout_secs=0.5"], "stop")
    with contextlib.closing(ControlBoard(first)) as board, contextlib.closing(ControlBoard(second)) as other:
        board.write_about({"ps": {"0": first.address, "1": second.address}})
        with raises("timed_out") as caught:  # the servers of a test do not end
            asking.stop_all(config, threading.Event())
        assert board.is_stop_requested() and other.is_stop_requested()
    assert f"{first}, {second}" in str(caught.value)


def test_a_request_that_ps_0_forgets_is_made_again(start_servers, capsys):
    """It was started again while the client waited."""
    cluster = start_servers(1, 1)
    ps = cluster.view("ps", 0).ps[0]
    config = control_flags.parse_control([f"--ps_hosts={ps.address}"], "save")
    with contextlib.closing(ControlBoard(ps)) as board:
        client = Call(lambda: asking.save_now(config, threading.Event()), name="client")
        wait_until(lambda: board.read().num_saves == 1, "the request")
        cluster.create_blackboard()
        wait_until(lambda: board.read().num_saves == 1, "the request, once more")
        board.answer_save(1, "model.ckpt-7", "")
        client.join(60)
        client.result()
    assert capsys.readouterr().out.endswith("saved model.ckpt-7\n")


def test_a_watch_ends_when_its_reader_has_ended(start_servers, monkeypatch):
    """`ps_train status --watch | head`."""
    [ps] = start_servers(1, 1).view("ps", 0).ps
    config = control_flags.parse_control([f"--ps_hosts={ps.address}", "--watch"], "status", control_flags.StatusConfig)
    reader, writer = os.pipe()
    os.close(reader)
    cut_off = os.fdopen(writer, "w")
    monkeypatch.setattr(sys, "stdout", cut_off)
    asking.print_status(config, threading.Event())
    with pytest.raises(BrokenPipeError):  # what is left in its buffer
        cut_off.close()


@pytest.mark.parametrize("kind", ["ascii", "utf-8", "full"])
def test_a_status_that_stdout_cannot_show_has_its_exit_code(tmp_path, monkeypatch, kind):
    """Issue: it ended in a traceback if the name of the folder has a character that stdout lacks, or no text at all."""
    folder = tmp_path / "l\u00e4te\udce9"
    folder.mkdir()
    (folder / "training.json").write_text(json.dumps({"model": "net", "dataset": "digits"}))
    (folder / "training.lock").write_text(json.dumps(
        {**json.loads(folder_lock.lock_text("noon", "token", 0)), "start": "1"}))
    stdout = open("/dev/full", "w") if kind == "full" else io.TextIOWrapper(io.BytesIO(), encoding=kind)  # noqa: SIM115
    monkeypatch.setattr(sys, "stdout", stdout)
    config = control_flags.parse_control([f"--train_dir={folder}"], "status", control_flags.StatusConfig)
    with raises("training_ended", kind=TrainingEndedError):
        asking.print_status(config, threading.Event())
    if kind == "full":
        with pytest.raises(OSError, match="No space"):  # what is left in its buffer
            stdout.close()
    else:
        name = "l\\xe4te\\udce9" if kind == "ascii" else "l\u00e4te\\udce9"
        assert f"net on digits, in {tmp_path}/{name}\n" in stdout.buffer.getvalue().decode(kind)


def test_the_status_has_the_rows_of_each_ps(start_servers, capsys):
    """The last counts of the chief's upkeep of the tables, as text and as JSON."""
    cluster = start_servers(1, 1)
    ps = cluster.view("ps", 0).ps[0]
    tables = [{"name": "users", "rows": 40, "ps": [{"name": "ps:0", "rows": 13, "bytes": 2652},
                                                   {"name": "ps:1", "rows": 27, "bytes": 5508}]}]
    with contextlib.closing(ControlBoard(ps)) as board:
        service = ClientService(board, {}, list, lambda: 7, lambda: {"tables": tables})
        service.serve()
    for flags in ([], ["--json"]):
        config = control_flags.parse_control([f"--ps_hosts={ps.address}", *flags], "status", control_flags.StatusConfig)
        asking.print_status(config, threading.Event())
    text, as_json = capsys.readouterr().out.strip().rsplit("\n", 1)
    assert "table users: 40 rows: 13 on ps:0 (2.65 kB), 27 on ps:1 (5.51 kB)" in text.splitlines()
    assert json.loads(as_json)["tables"] == tables
