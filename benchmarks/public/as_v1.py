"""Runs a script, or `-m module`, with TensorFlow's own compat.v1 in place of `tensorflow`: names only, nothing else."""

import os
import runpy
import sys

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
sys.modules["tensorflow"] = tf
if sys.argv[1] == "-m":
    sys.argv[:2] = []
    sys.path[0] = os.getcwd()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    sys.argv[:1] = []
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
