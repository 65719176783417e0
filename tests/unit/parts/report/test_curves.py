"""Values over steps from event files."""

from __future__ import annotations

import os

import tensorflow.compat.v1 as tf

from ps_train.parts.report import curves
from ps_train.parts.report.curves import read_series


def write(folder, number, events):
    """Writes a file of events."""
    with tf.io.TFRecordWriter(os.fsencode(folder / f"events.out.tfevents.{number}.host.{number}")) as file:
        for event in events:
            file.write(event.SerializeToString())


def scalar(step, value, tag="loss"):
    """Returns an event with one scalar."""
    return tf.Event(wall_time=100.0 + step, step=step,
                    summary=tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=value)]))


def start(step):
    """Returns the event with which a session begins."""
    return tf.Event(step=step, session_log=tf.SessionLog(status=tf.SessionLog.START))


def test_steps_that_were_taken_again_count_once(tmp_path):
    """After a loss, training continues from step 20; file 9 comes before file 10."""
    write(tmp_path, 9, [start(0), scalar(10, 3.0), scalar(20, 2.0), scalar(30, 1.0)])
    write(tmp_path, 10, [start(20), scalar(25, 1.5)])
    assert [(point.step, point.value) for point in read_series(str(tmp_path))["loss"]] == [(10, 3.0), (25, 1.5)]


def test_another_run_leaves_the_steps_of_the_one_before(tmp_path):
    """It may have begun at the first step again."""
    write(tmp_path, 1, [start(0), scalar(10, 3.0), scalar(20, 2.0)])
    again = start(0)
    again.wall_time = 200.0
    late = scalar(5, 4.0)
    late.wall_time = 205.0
    write(tmp_path, 2, [again, late])
    series = read_series(str(tmp_path), lambda time: int(time >= 150.0))
    assert [point.step for point in series["loss"]] == [10, 20, 5]


def test_a_folder_may_have_any_name(tmp_path):
    """Such as one with brackets, which a pattern of file names would take for a choice of letters."""
    folder = tmp_path / "run[1]"
    folder.mkdir()
    write(folder, 1, [scalar(1, 1.0)])
    assert list(read_series(str(folder))) == ["loss"]


def test_a_torn_file_counts_as_far_as_it_goes(tmp_path):
    """Its process was killed."""
    write(tmp_path, 1, [scalar(1, 1.0), scalar(2, 2.0)])
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:-3])
    assert [point.step for point in read_series(str(tmp_path))["loss"]] == [1]


def test_a_histogram_gives_its_mean_and_a_tensor_its_value(tmp_path):
    """An image gives nothing."""
    histogram = tf.HistogramProto(num=4, sum=6.0)
    tf2 = tf.Summary.Value(tag="tf2", tensor=tf.make_tensor_proto(0.5))
    tf2.metadata.plugin_data.plugin_name = "scalars"
    values = [tf.Summary.Value(tag="staleness", histo=histogram), tf2,
              tf.Summary.Value(tag="picture", image=tf.Summary.Image(height=1))]
    write(tmp_path, 1, [tf.Event(step=1, summary=tf.Summary(value=values))])
    assert {tag: points[0].value for tag, points in read_series(str(tmp_path)).items()} == {
        "staleness": 1.5, "tf2": 0.5}


def test_a_folder_without_events_has_none(tmp_path):
    """Nor has a missing folder."""
    assert read_series(str(tmp_path)) == read_series(str(tmp_path / "nowhere")) == {}


def test_long_series_are_thinned_and_keep_their_ends():
    """A picture has no more points than that."""
    points = list(range(2500))
    kept = curves.thinned(points)
    assert kept[0] == 0 and kept[-1] == 2499 and 500 < len(kept) <= 1001
    assert curves.thinned([1, 2]) == [1, 2]
