"""A script of Python 2, with a path of another place: `--python2 --map_path`, in a real process."""

from __future__ import annotations

import importlib.util

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("fissix") is None, reason="needs the extra python2")

SCRIPT = """\
import tensorflow as tf
import helper
FILES = "hdfs://cluster/data/part-*"
if True:
\tlines = open(tf.gfile.Glob(FILES)[0]).read().split()
        print "lines", len(lines) / 2
dataset = tf.data.TextLineDataset(["hdfs://cluster/data/part-0"])
with tf.Session() as session:
    print session.run(dataset.make_one_shot_iterator().get_next())
for i in xrange(1):
    helper.fail(i)
"""
HELPER = """\
import cPickle
def fail(i):
\tprint "helper", cPickle.loads(cPickle.dumps(i))
\traise ValueError, "of the helper"
"""


def test_a_script_of_python_2_runs_converted_and_stays_as_it_is(start_process, tmp_path):
    """Its module, too, and the path in both; the traceback has the lines of the original. Without it, one line."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/part-0").write_text("a\nb\nc\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text(HELPER)
    script = str(tmp_path / "script.py")
    start_process.start("plain", ["run", script])
    start_process.start("converted", ["run", "--python2", f"--map_path=hdfs://cluster/data={tmp_path}/data", script])
    codes = start_process.wait()
    assert (codes["plain"], codes["converted"]) == (1, 1)
    line = start_process.log("plain").splitlines()[-1]
    assert line.endswith("[python2_code]") and f"{script}, line 6 " in line
    assert f"`ps_train run --python2 {script}`" in line
    log = start_process.log("converted")
    assert "lines 1\nb'a'\nhelper 0\n" in log
    assert f'  File "{tmp_path}/helper.py", line 4, in fail\n    raise ValueError, "of the helper"\n' in log
    assert (tmp_path / "script.py").read_text() == SCRIPT and (tmp_path / "helper.py").read_text() == HELPER
    assert not (tmp_path / "__pycache__").exists()
