"""Names inside `tensorflow.python` that moved since 1.15; libraries with copies of TensorFlow's code use them."""

from __future__ import annotations

import importlib
import pkgutil

# Module -> the names that it had in 1.15 -> where they are today.
MOVED = {
    "tensorflow.python.ops.array_ops": {
        "stack": "tensorflow.python.ops.array_ops_stack:stack",
        "unstack": "tensorflow.python.ops.array_ops_stack:unstack",
        "parallel_stack": "tensorflow.python.ops.array_ops_stack:parallel_stack",
    },
    "tensorflow.python.ops.control_flow_ops": {
        "cond": "tensorflow.python.ops.cond:cond",
        "cond_v2": "tensorflow.python.ops.cond:cond_for_tf_v2",
        "while_loop": "tensorflow.python.ops.while_loop:while_loop",
        "while_loop_v2": "tensorflow.python.ops.while_loop:while_loop_v2",
        "case": "tensorflow.python.ops.control_flow_case:case",
        "case_v2": "tensorflow.python.ops.control_flow_case:case_v2",
        "Assert": "tensorflow.python.ops.control_flow_assert:Assert",
    },
    "tensorflow.python.ops.variables": {
        "VariableV1": "tensorflow.python.ops.variable_v1:VariableV1",
        "is_variable_initialized": "tensorflow.python.ops.variable_v1:is_variable_initialized",
    },
    "tensorflow.python.ops.variable_scope": {
        "variable": "tensorflow.python.ops.variable_v1:VariableV1",
    },
    "tensorflow.python.framework.ops": {
        "Tensor": "tensorflow.python.framework.tensor:Tensor",
        "TensorSpec": "tensorflow.python.framework.tensor:TensorSpec",
        "IndexedSlices": "tensorflow.python.framework.indexed_slices:IndexedSlices",
        "IndexedSlicesValue": "tensorflow.python.framework.indexed_slices:IndexedSlicesValue",
        "convert_to_tensor": "tensorflow.compat.v1:convert_to_tensor",
        "internal_convert_to_tensor": "tensorflow.compat.v1:convert_to_tensor",
        "convert_to_tensor_or_indexed_slices":
            "tensorflow.python.framework.indexed_slices:convert_to_tensor_or_indexed_slices",
        "convert_n_to_tensor_or_indexed_slices":
            "tensorflow.python.framework.indexed_slices:convert_n_to_tensor_or_indexed_slices",
    },
    "tensorflow.python.util.nest": {
        "is_sequence": "tensorflow.python.util.nest:is_nested",
    },
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


def move_back() -> None:
    """Puts each name where it was, if it is not there, and TF1's classes in place of TensorFlow 2's."""
    for module_name, names in MOVED.items():
        module = importlib.import_module(module_name)
        for name, today in names.items():
            if not hasattr(module, name):
                setattr(module, name, pkgutil.resolve_name(today))
    for module_name, names in REPLACED.items():
        for name, today in names.items():
            setattr(importlib.import_module(module_name), name, pkgutil.resolve_name(today))
