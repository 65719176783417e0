"""Names of `tf` that were renamed, from 0.8 to 1.15, and that compat.v1 does not have either.

The names that compat.v1 still has, such as `tf.app`, `tf.ConfigProto` or `tf.initialize_all_variables`, need no entry.
"""

from __future__ import annotations

_OLD = "ps_train.parts.legacy.names.arguments:"

NAMES = {
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
    "tf.select": _OLD + "select",
    "tf.batch_matmul": _OLD + "batch_matmul",
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
    # 1.0: the order of arguments, where the old one can be told from the new
    "tf.concat": _OLD + "concat",
    "tf.concat_v2": _OLD + "concat",
    "tf.split": _OLD + "split",
    "tf.split_v": _OLD + "split",
    "tf.reverse": _OLD + "reverse",
    "tf.reverse_v2": _OLD + "reverse",
    "tf.nn.softmax_cross_entropy_with_logits": _OLD + "softmax_cross_entropy_with_logits",
    "tf.nn.sparse_softmax_cross_entropy_with_logits": _OLD + "sparse_softmax_cross_entropy_with_logits",
    "tf.nn.sigmoid_cross_entropy_with_logits": _OLD + "sigmoid_cross_entropy_with_logits",
    # 1.0: summaries
    "tf.scalar_summary": _OLD + "scalar_summary",
    "tf.histogram_summary": _OLD + "histogram_summary",
    "tf.image_summary": _OLD + "image_summary",
    "tf.audio_summary": _OLD + "audio_summary",
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
}

ADVICE = {
    "tf.estimator": "install the Estimator: pip install 'ps_train[estimator]'",
    "tf.nn.seq2seq": "copy the function of TensorFlow 1 that you need, or use tf.nn.dynamic_rnn",
    "tf.models": "tf.models.rnn is tf.nn.rnn_cell and tf.nn.static_rnn",
}

_NUMPY = "ps_train.parts.legacy.names.libraries.numpy_calls:"
_NUMPY_EXCEPTIONS = "numpy.exceptions:"

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
    **{name: _NUMPY + name for name in ("NINF", "PZERO", "NZERO", "in1d", "asfarray", "msort")},
    **{name: _NUMPY_EXCEPTIONS + name for name in (
        "AxisError", "ComplexWarning", "RankWarning", "VisibleDeprecationWarning")},
}
