"""What a TF1 script finds at `import tensorflow as tf`: one child process checks it all (names_child.py)."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys

import pytest

from tests.processes import REPO

DEADLINE_SECS = 300

pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("tf_slim", "tf_keras", "tensorflow_estimator"))),
    reason="needs the extras legacy and estimator")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Name of a check -> its result."""
    output = tmp_path_factory.mktemp("names") / "found.json"
    ended = subprocess.run([sys.executable, "-m", "tests.cluster.parts.legacy.names.names_child", str(output)],
                           cwd=REPO, capture_output=True, text=True, timeout=DEADLINE_SECS,
                           env={**os.environ, "PYTHONPATH": str(REPO)})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(output.read_text(encoding="utf-8"))


@pytest.mark.parametrize("check", ["unresolved", "missing_inside", "missing_in_numpy", "still_without_a_stand_in"])
def test_every_entry_of_the_tables_leads_somewhere(found, check):
    """By attribute, and for modules by an import statement as well; and no advice is for a name that is there."""
    assert found[check] == []


def test_tensorflow_itself_stays_reachable(found):
    """Its version, compat.v1, compat.v2, the private modules, and TF1's `io` after an import of TF2's."""
    assert found["kept"] == dict.fromkeys(
        ("version", "v1", "v2", "io of TF1", "private", "constants", "device", "keras 2", "dir"), True)


def test_import_statements_find_what_attributes_find(found):
    """Modules and names of contrib, Keras, the tutorials and the Estimator's old place."""
    assert found["imports"] == [True] * 16


def test_a_missing_name_is_one_line_with_the_line_of_the_script(found):
    """An AttributeError or ImportError of one line, with what to use instead."""
    errors = found["errors"]
    assert errors.pop("hasattr") == [False, False, 3]
    assert {what: kind for what, (kind, _) in errors.items()} == {
        "attribute": "MissingNameError", "contrib": "MissingNameError", "import": "MissingModuleError",
        "from": "MissingModuleError", "a name": "MissingModuleError", "of TensorFlow": "MissingModuleError"}
    lines = {what: line for what, (_, line) in errors.items()}
    assert lines["attribute"].startswith("tf.train.nothing is not in TensorFlow 2.")
    assert lines["contrib"].startswith("tf.contrib.crf is not in") and "copy the function" in lines["contrib"]
    assert lines["import"].startswith("tf.contrib.nothing is not in")
    assert lines["from"].startswith("tf.contrib.seq2seq.Helper is not in")
    assert lines["a name"] == "tensorflow.mul is no module: write from tensorflow import mul"
    for what, line in lines.items():
        assert "\n" not in line and (what == "a name" or "names_child.py:" in line)


def test_a_script_may_define_flags_that_absl_has(found):
    """--log_dir, --v and --verbosity are the script's; _parse_flags leaves unknown flags alone."""
    assert found["flags"] == ["/logs", True, 8]


def test_a_flag_takes_any_default(found):
    """As before 1.5; whole numbers become ints, and the command line is still checked."""
    assert found["odd_defaults"] == {
        "examples": 1000000, "kind": "other", "layers": 7, "maybe": "maybe", "none": "", "port": 5, "rate": 0.5,
        "replaced": 4, "steps": math.inf, "units": 3}


def test_numpy_prints_whole_arrays_for_a_threshold_of_nan(found):
    """In set_printoptions by name and by position, and in array2string; 2000 numbers."""
    assert found["numpy_arguments"] == [2000, 2000, 2000, True, [False, True], 2, -math.inf]


def test_a_name_is_located_as_in_tensorflow_1(found):
    """pydoc.locate looks for a module first, and goes on if there is none; so do others that ask for a spec."""
    assert found["located"] == [True, True, None, None, True]


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="needs pandas")
def test_columns_of_pandas_own_types_reach_the_graph(found):
    """pandas 3 has such a type for every column of strings."""
    columns, old = found["pandas_columns"]
    assert columns == {"text": ["x", "y"], "own": ["x", "y"], "kind": ["b", "a"], "number": ["1", "2"],
                       "constant": ["x", "y"], "of its dtype": ["x", "y"]}
    assert old == [[[1], [2]], 3, "y"]


def test_keras_mnist_is_read_from_a_file_that_is_there(found):
    """Without a download, and whatever its hash."""
    assert found["keras_data"] == [[[1], [2]], [[3], [4]]]


def test_functions_take_their_old_arguments_and_those_of_1_0(found):
    """The axis of concat and split comes first or last; reverse takes bools or axes."""
    joined, stacked = [[1, 2, 3, 4]], [[1, 2], [3, 4]]
    halves = [[[1]], [[2]]]
    assert found["old_arguments"] == {
        "concat": joined, "concat of 1.0": stacked, "concat_dim": joined, "split": halves, "split of 1.0": halves,
        "split_dim": halves, "reverse": [[2, 1]], "reverse of 1.0": [[2, 1]], "pack": [[[1, 2]], [[3, 4]]],
        "select": [[1, 4]], "batch_matmul": [[11]], "mul": [[3, 8]], "sub": [[-2, -2]]}


def test_cross_entropies_take_logits_and_labels_by_position(found):
    """As before 1.0, and by name as since."""
    both = {kind: pair for kind, pair in found["cross_entropies"].items()}
    assert all(old == new for old, new in both.values())
    assert both["softmax"][0][0] == pytest.approx(math.log(1 + math.exp(-1)))
    assert both["sigmoid"][0][0] == pytest.approx([math.log(1 + math.e), math.log(1 + math.exp(-2))])


def test_metrics_and_losses_of_contrib_take_predictions_first(found):
    """Of predictions 1 1 1 0 and labels 1 0 0 0: accuracy 1/2, precision 1/3, recall 1; log loss of 1/4."""
    assert found["metrics"] == pytest.approx([0.5, 1 / 3, 1.0, math.log(4)], abs=1e-5)


def test_tables_of_contrib_lookup_look_up(found):
    """Strings to positions and back; what is not there gets the default."""
    assert found["lookup"] == [[1, -1, 0], [7, -1], ["b", "?"]]


def test_a_dataset_takes_the_arguments_of_contrib_data(found):
    """num_threads and output_buffer_size of map, batch_and_drop_remainder."""
    assert found["dataset_map"] == [0, 2, 4]


def test_a_global_step_made_by_hand_is_found(found):
    """None before it is made; then hooks stop at it, though no collection has it."""
    assert found["global_steps"] == [True, True, 3]


def test_every_variable_is_an_instance_of_variable(found):
    """Resource variables too; a tensor is none."""
    assert found["variables_that_are_instances"] == [True, True, True, False]


def test_the_loss_of_a_regularizer_is_a_tensor(found):
    """With a name, and half of a half of 25."""
    assert found["losses_of_regularizers"] == ["w/Regularizer/l2_regularizer", 6.25]


def test_a_queue_takes_its_names_from_a_variable(found):
    """string_input_producer asks `not variable`."""
    assert found["a_queue_of_a_variable"] == ["a", "b"]


def test_a_slim_model_trains(found):
    """With arg_scope, a regularizer, batch_norm and optimize_loss, which counts the global step."""
    assert found["slim_trains"] == [True, 50]


def test_lstm_block_cell_gives_the_numbers_of_basic_lstm_cell(found):
    """It is LSTMCell today."""
    assert found["recurrent_cells"] < 1e-6


def test_contrib_learn_trains_evaluates_and_predicts(found):
    """A classifier of arrays, which warns of what it cannot do, and an Experiment with a model_fn of contrib.learn."""
    assert found["contrib_learn"] == [True, True, True, True, 60, True]


def test_worker_0_is_the_chief_of_a_cluster_without_one(found):
    """contrib.learn took such a TF_CONFIG; the Estimator does not."""
    assert found["a_chief_that_is_worker_0"] == [False, "grpc://c:2", "worker", 1, 2, 1, True]
