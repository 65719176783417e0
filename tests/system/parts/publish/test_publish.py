"""What is served equals what was trained, with real tasks, a publisher and a server of which each is killed."""

from __future__ import annotations

import json

from ps_train.parts.tables import contents
from ps_train.storage import checkpoints
from tests.live_server import LiveServer
from tests.predict_server import serving
from tests.processes import TaskCluster
from tests.push_reader import PushReader

_FLAGS = ["--model=tests.plugins.row_values", "--dataset=tests.plugins.row_values", "--train_steps=100000000",
          "--save_delta_secs=0.5", "--save_model_secs=4", "--log_steps=0",
          "--params=ttl_steps=200"]


def _trained(train_dir):
    """Returns id -> row in the newest checkpoint, a list of floats."""
    path = checkpoints.newest_sound(str(train_dir))
    return {key: row for ids, rows in contents.read_table(path, "rows")
            for key, row in zip(ids.tolist(), rows.tolist())}


def _wait_for_pushes(start_process, publisher):
    """Two more, so that the first checkpoint or delta behind them was not written before this call."""
    number = start_process.log(publisher).count("published step") + 2
    start_process.wait_for_line(publisher, "published step", number=number)


def test_rows_served_equal_rows_trained_whatever_is_killed(tmp_path, start_process):
    """One by one, in a reader of the folder and in a server; ids that were dropped are gone."""
    train_dir, publish_dir = tmp_path / "train", tmp_path / "served"
    cluster, flags = TaskCluster(2, 2), [*_FLAGS, f"--train_dir={train_dir}"]
    tasks = {f"{job}-{index}": [*cluster.flags(job, index), *flags] for job, index in cluster.tasks()}
    for name, arguments in tasks.items():
        start_process.start(name, arguments)
    server, reader = LiveServer(publish_dir), PushReader(publish_dir)
    with serving(lambda *call: server.call(*call)) as port:
        tasks["publisher"] = ["publish", str(train_dir), f"--publish_dir={publish_dir}", "--publish_secs=0.5",
                              f"--targets=localhost:{port}/m"]
        publisher = "publisher"
        start_process.start(publisher, tasks["publisher"])
        for lost in ("publisher", "server", "ps-1", "worker-0"):
            _wait_for_pushes(start_process, publisher)
            reader.follow()
            if lost == "server":
                server = LiveServer(publish_dir)
                server.load_if_needed()
            else:
                start_process.kill(lost)
                start_process.start(f"{lost}-again", tasks.pop(lost))
                publisher = f"{lost}-again" if lost == "publisher" else publisher
        _wait_for_pushes(start_process, publisher)
        running = [name for name in start_process.names if start_process.poll(name) is None]
        for name in running:
            start_process.signal(name, 15)
        assert {start_process.exit_code(name) for name in running} == {143}
        start_process.start("last", ["publish", str(train_dir), f"--publish_dir={publish_dir}", "--once",
                                     f"--targets=localhost:{port}/m"])
        assert start_process.exit_code("last") == 0
    rows = _trained(train_dir)
    assert rows == reader.follow().tables["rows"] == server.tables["rows"]
    assert reader.dense == server.dense
    status = json.loads((train_dir / "publish.json").read_text())
    assert (status["number"], status["targets"][0]["problem"]) == (reader.number, "")
