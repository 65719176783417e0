"""The tables of names: name in TF1 -> what it is today, and advice for names without a stand-in.

The names that compat.v1 still has, such as `tf.app`, `tf.ConfigProto` or `tf.initialize_all_variables`, need no entry.
Those of tf.contrib are in `contrib_tables.py`. Nothing here imports TensorFlow, so a document can show the tables.
"""

from __future__ import annotations

from ps_train.parts.legacy.names import contrib_tables
from ps_train.parts.legacy.names.namespace import Tables

_FUNCTIONS = "ps_train.parts.legacy.names.functions:"
_EXAMPLES = "ps_train.parts.legacy.names.examples:"
_REPAIRS = "ps_train.parts.legacy.names.repairs:"
_MNIST = "tf.examples.tutorials.mnist"

# Names of `tf` that were renamed, from 0.8 to 1.15, and that compat.v1 does not have either.
_NAMES = {
    # 1.0: arithmetic and arrays
    "tf.mul": "tf.multiply",
    "tf.sub": "tf.subtract",
    "tf.neg": "tf.negative",
    "tf.inv": "tf.reciprocal",
    "tf.complex_abs": "tf.abs",
    "tf.pack": "tf.stack",
    "tf.unpack": "tf.unstack",
    "tf.listdiff": "tf.setdiff1d",
    "tf.list_diff": "tf.setdiff1d",
    "tf.select": _FUNCTIONS + "select",
    "tf.batch_matmul": _FUNCTIONS + "batch_matmul",
    "tf.batch_matrix_band_part": "tf.matrix_band_part",
    "tf.batch_matrix_diag": "tf.matrix_diag",
    "tf.batch_matrix_diag_part": "tf.matrix_diag_part",
    "tf.batch_matrix_set_diag": "tf.matrix_set_diag",
    "tf.batch_matrix_transpose": "tf.matrix_transpose",
    "tf.batch_matrix_determinant": "tf.matrix_determinant",
    "tf.batch_matrix_inverse": "tf.matrix_inverse",
    "tf.batch_matrix_solve": "tf.matrix_solve",
    "tf.batch_matrix_solve_ls": "tf.matrix_solve_ls",
    "tf.batch_matrix_triangular_solve": "tf.matrix_triangular_solve",
    "tf.batch_cholesky": "tf.cholesky",
    "tf.batch_cholesky_solve": "tf.cholesky_solve",
    "tf.batch_self_adjoint_eig": "tf.self_adjoint_eig",
    "tf.batch_self_adjoint_eigvals": "tf.self_adjoint_eigvals",
    "tf.batch_svd": "tf.svd",
    "tf.batch_fft": "tf.fft",
    "tf.batch_ifft": "tf.ifft",
    "tf.batch_fft2d": "tf.fft2d",
    "tf.batch_ifft2d": "tf.ifft2d",
    "tf.batch_fft3d": "tf.fft3d",
    "tf.batch_ifft3d": "tf.ifft3d",
    "tf.image.per_image_whitening": "tf.image.per_image_standardization",
    # 1.0: the order of arguments, where the old one can be recognised
    "tf.concat": _FUNCTIONS + "concat",
    "tf.concat_v2": _FUNCTIONS + "concat",
    "tf.split": _FUNCTIONS + "split",
    "tf.split_v": _FUNCTIONS + "split",
    "tf.reverse": _FUNCTIONS + "reverse",
    "tf.reverse_v2": _FUNCTIONS + "reverse",
    "tf.nn.softmax_cross_entropy_with_logits": _FUNCTIONS + "softmax_cross_entropy_with_logits",
    "tf.nn.sparse_softmax_cross_entropy_with_logits": _FUNCTIONS + "sparse_softmax_cross_entropy_with_logits",
    "tf.nn.sigmoid_cross_entropy_with_logits": _FUNCTIONS + "sigmoid_cross_entropy_with_logits",
    # 1.0: summaries
    "tf.scalar_summary": _FUNCTIONS + "scalar_summary",
    "tf.histogram_summary": _FUNCTIONS + "histogram_summary",
    "tf.image_summary": _FUNCTIONS + "image_summary",
    "tf.audio_summary": _FUNCTIONS + "audio_summary",
    "tf.merge_summary": "tf.summary.merge",
    "tf.merge_all_summaries": "tf.summary.merge_all",
    "tf.train.SummaryWriter": "tf.summary.FileWriter",
    "tf.train.SummaryWriterCache": "tf.summary.FileWriterCache",
    # 1.0: recurrent networks
    "tf.nn.rnn": "tf.nn.static_rnn",
    "tf.nn.bidirectional_rnn": "tf.nn.static_bidirectional_rnn",
    "tf.nn.state_saving_rnn": "tf.nn.static_state_saving_rnn",
    # 1.0: the second version of a class took the first one's name
    "tf.train.SyncReplicasOptimizerV2": "tf.train.SyncReplicasOptimizer",
    # 2.4
    "tf.distribute.MultiWorkerMirroredStrategy": "tf.distribute.experimental.MultiWorkerMirroredStrategy",
    # The whole modules, which the copies inside compat.v1 are not
    "tf.compat.v1": "tensorflow.compat.v1",
    "tf.compat.v2": "tensorflow.compat.v2",
    # examples, and Keras' MNIST
    **{f"{_MNIST}.input_data.{name}": _EXAMPLES + name for name in ("read_data_sets", "DataSet", "dense_to_one_hot")},
    **{f"{_MNIST}.mnist.{name}": f"{_EXAMPLES}mnist_{name}" for name in (
        "inference", "loss", "training", "evaluation")},
    **{f"{_MNIST}.mnist.{name}": _EXAMPLES + name for name in ("NUM_CLASSES", "IMAGE_SIZE", "IMAGE_PIXELS")},
    "tf.keras.datasets.mnist.load_data": _EXAMPLES + "load_mnist",
}

_ADVICE = {
    "tf.estimator": "install the Estimator: pip install 'ps_train[estimator]'",
    "tf.nn.seq2seq": "copy the function of TensorFlow 1 that you need, or use tf.nn.dynamic_rnn",
    "tf.models": "tf.models.rnn is tf.nn.rnn_cell and tf.nn.static_rnn",
    "tf.examples": "use tensorflow_datasets, or a reader of your own; the tutorials' MNIST is there",
}

TABLES = Tables(
    names={**_NAMES, **contrib_tables.NAMES}, modules=contrib_tables.MODULES,
    advice={**_ADVICE, **contrib_tables.ADVICE}).with_parents()

# Names that numpy has taken away, from 1.18 to 2.4 -> what they were. They are set in numpy itself.
NUMPY = {
    "int": "builtins:int", "float": "builtins:float", "bool": "builtins:bool", "complex": "builtins:complex",
    "object": "builtins:object", "str": "builtins:str", "long": "builtins:int", "unicode": "builtins:str",
    "float_": "numpy:float64", "complex_": "numpy:complex128", "string_": "numpy:bytes_", "unicode_": "numpy:str_",
    "Inf": "numpy:inf", "Infinity": "numpy:inf", "infty": "numpy:inf", "PINF": "numpy:inf", "NaN": "numpy:nan",
    "NAN": "numpy:nan", "product": "numpy:prod", "cumproduct": "numpy:cumprod", "sometrue": "numpy:any",
    "alltrue": "numpy:all", "row_stack": "numpy:vstack", "asscalar": "numpy:ndarray.item", "mat": "numpy:asmatrix",
    "round_": "numpy:round", "alen": "builtins:len", "rank": "numpy:ndim", "trapz": "numpy:trapezoid",
    "bool8": "numpy:bool_", "int0": "numpy:intp", "uint0": "numpy:uintp", "object0": "numpy:object_",
    "str0": "numpy:str_", "bytes0": "numpy:bytes_", "void0": "numpy:void", "singlecomplex": "numpy:complex64",
    "cfloat": "numpy:complex128", "longfloat": "numpy:longdouble", "clongfloat": "numpy:clongdouble",
    "longcomplex": "numpy:clongdouble",
    **{name: _REPAIRS + name for name in ("NINF", "PZERO", "NZERO", "in1d", "asfarray", "msort")},
    **{name: "numpy.exceptions:" + name for name in (
        "AxisError", "ComplexWarning", "RankWarning", "VisibleDeprecationWarning")},
}


def _as_before(module: str, *names: str) -> dict[str, str]:
    """Returns name -> the same name in a module of today."""
    return {name: f"{module}:{name}" for name in names}


# Modules inside `tensorflow.python`, which libraries with copies of TensorFlow's code use: module -> the names that it
# had in 1.15 -> where they are today.
MOVED = {
    "tensorflow.python.ops.array_ops": _as_before(
        "tensorflow.python.ops.array_ops_stack", "stack", "unstack", "parallel_stack"),
    "tensorflow.python.ops.control_flow_ops": {
        "cond": "tensorflow.python.ops.cond:cond",
        "cond_v2": "tensorflow.python.ops.cond:cond_for_tf_v2",
        **_as_before("tensorflow.python.ops.while_loop", "while_loop", "while_loop_v2"),
        **_as_before("tensorflow.python.ops.control_flow_case", "case", "case_v2"),
        **_as_before("tensorflow.python.ops.control_flow_assert", "Assert"),
    },
    "tensorflow.python.ops.variables": _as_before(
        "tensorflow.python.ops.variable_v1", "VariableV1", "is_variable_initialized"),
    "tensorflow.python.ops.variable_scope": {"variable": "tensorflow.python.ops.variable_v1:VariableV1"},
    "tensorflow.python.framework.ops": {
        **_as_before("tensorflow.python.framework.tensor", "Tensor", "TensorSpec"),
        **_as_before("tensorflow.python.framework.indexed_slices", "IndexedSlices", "IndexedSlicesValue",
                     "convert_to_tensor_or_indexed_slices", "convert_n_to_tensor_or_indexed_slices"),
        "convert_to_tensor": "tensorflow.compat.v1:convert_to_tensor",
        "internal_convert_to_tensor": "tensorflow.compat.v1:convert_to_tensor",
    },
    "tensorflow.python.util.nest": {"is_sequence": "tensorflow.python.util.nest:is_nested"},
}

# Names that mean TensorFlow 2's class there today -> TF1's class.
REPLACED = {
    # Its DeviceSpec can be changed: merge_from, and attributes that can be set.
    "tensorflow.python.framework.device": {"DeviceSpec": "tensorflow.python.framework.device_spec:DeviceSpecV1"},
}

# Packages inside TensorFlow that became packages of their own.
PACKAGES = {
    "tensorflow.python.estimator": "tensorflow_estimator.python.estimator",
    # TensorFlow 2.16 and later look there for the layer under tf_slim's batch_norm; Keras 2 has it elsewhere.
    "tf_keras.legacy_tf_layers": "tf_keras.src.legacy_tf_layers",
    "tensorflow.python.keras.preprocessing": "tf_keras.preprocessing",
}
