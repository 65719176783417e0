"""Looks into a script before it runs: its file, its TensorFlow, and how it learns which task it is.

Nothing here imports TensorFlow.
"""

from __future__ import annotations

import os
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec

from ps_train.errors import ConfigError
from ps_train.parts.legacy import looped_flags, old_checkpoints
from ps_train.parts.legacy.flags import Script

CLUSTER_VARIABLE = "PS_TRAIN_CLUSTER"  # JSON, job -> addresses: those of the launcher, for a `Server`
# Names that only TensorFlow 1 code has.
_TF1 = re.compile(
    r"\btf\.(compat\.v1\b|Session\b|InteractiveSession\b|placeholder\b|app\b|flags\b|contrib\b|estimator\b|layers\b|"
    r"get_variable\b|ConfigProto\b|global_variables|initialize_|logging\b|enable_eager_execution\b|train\.(Server|"
    r"Supervisor|Monitored|SyncReplicas|replica_device_setter|Saver|get_or_create|string_input|\w*Optimizer))|"
    r"tensorflow\.(contrib|examples|compat\.v1|python)\b|disable_v2_behavior|\btf_slim\b")
# More names that TensorFlow 2 lacks. Code for both asks for some of them where it finds no name of TensorFlow 2.
_GONE = re.compile(
    r"\btf\.(set_random_seed|random_(normal|uniform|crop|shuffle)|truncated_normal|log|to_(float|double|int32|int64)|"
    r"(reset|get)_default_graph|trainable_variables|gfile|py_func|GraphDef|variable_scope|AUTO_REUSE|get_collection|"
    r"add_to_collection|assign(_add|_sub)?|Print|div|read_file|decode_raw|parse_(single_)?example|python_io|"
    r"(FixedLen|VarLen)Feature|sparse_(to_dense|tensor_to_dense|placeholder)|summary\.(FileWriter|merge_all))\b")
# Where TensorFlow 2 has them, if not by the same name in a module of it. Code that asks which one there is is for both.
_RENAMED = {"py_func": r"(py|numpy)_function", "Print": "print", "div": r"(math\.)?divide",
            "summary.FileWriter": r"summary\.create_file_writer"}
_ASKS = re.compile(r"\bhasattr\(tf\b|AttributeError|\bexcept( Exception)?:|__version__|(?i:tf_?v?[12]\b)")
# What code for TensorFlow 2 has of TensorFlow 1, too.
_ALSO_IN_TF2 = re.compile(
    r"\b(tf|tensorflow)\.compat\.v1(\.|[ \t]+import[ \t]+)(logging|app|flags|gfile|random|set_random_seed|keras|"
    r"enable_\w+|executing_eagerly\w*)\b|\btensorflow\.python\b")
_IN_MODULES_OF_TF2 = re.compile(r"\b(tf|tensorflow)\.(compat\.v1|python)\b")
# In a module whose tf is that of TensorFlow 1 in TensorFlow 2, the names say nothing, but what cannot run eagerly does.
_IS_COMPAT_V1 = re.compile(
    r"^[ \t]*(import[ \t]+tensorflow\.compat\.v1[ \t]+as[ \t]+tf|"
    r"from[ \t]+tensorflow\.compat[ \t]+import[ \t]+v1[ \t]+as[ \t]+tf|"
    r"tf[ \t]*=[ \t]*(tf|tensorflow)\.compat\.v1)\b[ \t]*([#;,]|$)", re.MULTILINE)
_TURNS_TF2_OFF = re.compile(r"\bdisable_(v2_behavior|eager_execution)\b")
_BUILDS_A_GRAPH = re.compile(r"\btf\.(placeholder|train\.(Server|Supervisor|Monitored\w+|replica_device_setter))\(")
_RUNS_EAGERLY = re.compile(r"\btf\.function\b|\bGradientTape\b|\btf\.random\.set_seed\b|\benable_v2_behavior\b")
# Names that Keras 3 does not have, and tf.keras had in other places: of the package keras up to 2.3, and its calls.
_OLD_KERAS = re.compile(
    r"\bkeras\.(engine|objectives|initializations|legacy|backend\.tensorflow_backend|wrappers\.scikit_learn|"
    r"layers\.(core|convolutional|pooling|normalization|recurrent|embeddings|merge|noise|wrappers|advanced_activations|"
    r"local)|utils\.(np_utils|vis_utils|generic_utils|layer_utils|io_utils|multi_gpu_utils))\b|\bnb_epoch\b|"
    r"\bborder_mode\b|\bsamples_per_epoch\b|\b(set_image_dim_ordering|multi_gpu_model)\(|"
    r"\b(K|keras\.backend)\.(set_session|get_session|function|gradients|placeholder|learning_phase|"
    r"set_learning_phase)\(")
_KERAS_PACKAGE = re.compile(r"^[ \t]*(from[ \t]+keras\b|import[ \t]([^\n#]*,[ \t]*)?keras\b)", re.MULTILINE)
# The same, not of Keras's functions and data alone, which fit any model; `import keras` shows it by what is used of it.
_FITS_ANY_MODEL = r"(datasets|utils|preprocessing|__version__)\b"
_KERAS_CLASSES = re.compile(
    rf"^[ \t]*(from[ \t]+keras(\.(?!{_FITS_ANY_MODEL})|[ \t]+import\b(?!"
    rf"[ \t]*\(?\s*({_FITS_ANY_MODEL}([ \t]+as[ \t]+\w+)?\s*,?\s*)+\)?[ \t]*(;|$)))|"
    rf"import[ \t]([^\n#]*,[ \t]*)?keras\.(?!{_FITS_ANY_MODEL}))|\bPyDataset\b", re.MULTILINE)
_WHOLE_KERAS = re.compile(
    r"^[ \t]*import[ \t](?:[^\n#]*,[ \t]*)?keras(?:[ \t]+as[ \t]+(\w+))?[ \t]*(?:[,;]|$)", re.MULTILINE)
_TF_KERAS = re.compile(r"\b(tf|tensorflow)\.keras\b|\bfrom[ \t]+tensorflow[ \t]+import[ \t][^\n]*\bkeras\b")
_NEEDS_KERAS_2 = re.compile(r"MultiWorkerMirroredStrategy|ParameterServerStrategy|\boptimizers\.legacy\b")
_OLD_CALLS = re.compile(
    r"\.(fit|evaluate|predict)_generator\(|\.predict_(classes|proba)\(|\bConvolution[123]D\(|\bModel\(input=|"
    r"\binit=['\"]|\bK\.(?!((set_)?(floatx|epsilon|image_data_format)|clear_session|backend)\b)\w+\(|"
    r"\b(SGD|RMSprop|Ada\w+|Nadam)\([^()]*\blr ?=|\w\[['\"](val_)?acc['\"]\]|\bmonitor ?= ?['\"]acc['\"]|"
    r"['\"{]val_acc\b|\bkeras\.preprocessing(\.|[ \t]+import[ \t]+)text\b")
# Names and files of Keras 3, or of code that runs eagerly. A string may also be the name of a module.
_KERAS_TODAY = re.compile(
    r"\bkeras\.(ops|random|saving|distribution)\b|KERAS_BACKEND|\bSKLearn\w+\b|run_eagerly|\.numpy\(\)|\bPyDataset\b|"
    r"\bfrom[ \t]+keras[ \t]+import[ \t][^\n]*\b(ops|random|saving|distribution)\b|"
    r"['\"][^'\"\n]*[\w})](?<!\btf)(?<!\btensorflow)(?<!python)(?<!horovod)\.keras['\"]")
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]*)|import[ \t]+([^\n#;]*))",
                     re.MULTILINE)
_MOST_MODULES = 1000
# Names that only TensorFlow 2 code has. Keras is no such name in a Horovod script: those of its Keras 2 build graphs,
# unless they configure GPUs as TensorFlow 2 does.
_TF2 = (r"tf\.function|MultiWorkerMirroredStrategy|tf\.distribute\.|GradientTape|tf\.random\.set_seed|"
        r"enable_v2_behavior")
_KERAS_TF2 = re.compile(rf"\bkeras\b|{_TF2}")
_HOROVOD = re.compile(r"^[ \t]*(from|import)[ \t]+horovod\b", re.MULTILINE)
_HOROVOD_TF2 = re.compile(rf"tf\.config\.|experimental_run_tf_function|tf\.optimizers\.|{_TF2}")
_NOTES = re.compile(
    r"""(\"{3}|'{3})(?:\\.|(?!\1).)*\1|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|\#[^\n]*""", re.DOTALL)


def find(script: Script) -> pathlib.Path:
    """Returns the file of a script.

    Raises:
      ConfigError: the file or module does not exist.
    """
    if not script.is_module:
        path = pathlib.Path(script.name)
        if not path.is_file():
            raise ConfigError("script_not_found", f"ps_train run: no file {script.name!r} in {pathlib.Path.cwd()}; "
                              "give the path of a Python script, or -m and the name of a module")
        return path
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    spec = _module_spec(script.name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _module_spec(f"{script.name}.__main__")
    if spec is None or not spec.has_location:
        raise ConfigError("script_not_found", f"ps_train run: no module {script.name!r} in the working directory "
                          f"{pathlib.Path.cwd()}")
    return pathlib.Path(str(spec.origin))


def _module_spec(name: str) -> ModuleSpec | None:
    """Returns where a module is, or None."""
    # Not `importlib.util.find_spec`: it imports the packages around a module, which may need TensorFlow 1's names.
    spec, path = None, None
    parts = name.split(".")
    if not all(parts):
        return None
    for end in range(1, len(parts) + 1):
        spec = next(filter(None, (finder.find_spec(".".join(parts[:end]), path) for finder in sys.meta_path)), None)
        if spec is None or (end < len(parts) and spec.submodule_search_locations is None):
            return None
        path = spec.submodule_search_locations
    return spec


def is_tensorflow_1(tf_mode: str, text: str) -> bool:
    """Returns whether a script runs with TensorFlow 1's names, from --tf_mode and its text.

    With auto it does if it uses names of TensorFlow 1, names of the old package keras and none of TensorFlow 2, or
    neither Keras nor a name that only TensorFlow 2 has.
    """
    if tf_mode != "auto":
        return tf_mode == "1"
    code = _without_notes(text)
    names_of_2 = _HOROVOD_TF2 if _HOROVOD.search(code) else _KERAS_TF2
    if _has_names_of_1(code) or not names_of_2.search(code) or _is_old_keras(code):
        return True
    return bool(_TF1.search(text)) and not _is_of_today(code)  # a comment shows when the code was written


def _without_notes(text: str) -> str:
    """Returns a text without its comments and documentation, which may name what the code does not use."""
    return _NOTES.sub(lambda match: match[2] or "", text)


def _has_names_of_1(text: str) -> bool:
    if re.search(_TF2, text):
        return bool(_TF1.search(_ALSO_IN_TF2.sub("", text)))
    return bool(_TF1.search(text)) or _has_gone_names(text)


def _has_gone_names(text: str) -> bool:
    """Returns whether a text has names that TensorFlow 2 lacks, other than those that it uses if they are there."""
    without_questions = re.sub(r"^[^\n]*\bhasattr\(tf\b[^\n]*", "", text, flags=re.MULTILINE)
    is_for_both = _ASKS.search(text) is not None
    return any(not (is_for_both and _has_other_place(name, text))
               for name in {found[1] for found in _GONE.finditer(without_questions)})


def _has_other_place(name: str, text: str) -> bool:
    """Returns whether a text asks for a name of TensorFlow 1, or uses what replaces it in TensorFlow 2."""
    first, escaped = name.split(".")[0], re.escape(name)
    today = _RENAMED.get(name, name.replace("_", r"\.", 1) if "_" in name else rf"\w+\.{escaped}")
    places = rf"\bhasattr\(tf, ?['\"]{first}['\"]|\btf\.(?!compat\b)(\w+\.{escaped}|{today})\b"
    return re.search(places, text) is not None


def _is_module_of_1(text: str, *, is_beside_tf2: bool) -> bool:
    """Returns whether a module, which a script imports, only works with TensorFlow 1's names.

    Args:
      text: without comments.
      is_beside_tf2: whether the script or one of its modules has names that only TensorFlow 2 code has.
    """
    if _TURNS_TF2_OFF.search(text):
        return True
    if _IS_COMPAT_V1.search(text):
        return _BUILDS_A_GRAPH.search(text) is not None and "tf.Graph()" not in text
    own = _IN_MODULES_OF_TF2.sub("", text)
    if _RUNS_EAGERLY.search(text):
        return "tf.enable_eager_execution(" in own
    return bool(_TF1.search(own)) or (not is_beside_tf2 and _has_gone_names(own))


def _is_of_today(text: str) -> bool:
    return bool(re.search(_TF2, text) or _KERAS_TODAY.search(text))


def _is_old_keras(text: str) -> bool:
    is_old = _OLD_CALLS.search(text) or old_checkpoints.has_some(text)
    return bool(_OLD_KERAS.search(text) or (_KERAS_PACKAGE.search(text) and is_old)) and not _is_of_today(text)


def is_script_tensorflow_1(tf_mode: str, path: pathlib.Path, script: Script) -> bool:
    """Returns the same for a file; the local modules that it imports count, where the sessions often are.

    They do not count if the file itself has names of TensorFlow 2 or Keras 3. Each of them counts by itself, and not if
    it works with TensorFlow 2.

    Raises:
      ConfigError: the file cannot be read.
    """
    text = text_of(path)
    if tf_mode != "auto" or is_tensorflow_1(tf_mode, text):
        return is_tensorflow_1(tf_mode, text)
    texts = [_without_notes(module) for module in _texts_with_imports(path, script)]
    with_imports = "\n".join(texts)
    if _HOROVOD.search(with_imports):
        return is_tensorflow_1(tf_mode, with_imports)
    if _is_of_today(texts[0]):
        return False
    is_beside_tf2 = re.search(_TF2, with_imports) is not None
    return (any(_is_module_of_1(module, is_beside_tf2=is_beside_tf2) for module in texts[1:])
            or _is_old_keras(with_imports))


def needs_one_keras(tf_mode: str, path: pathlib.Path, script: Script) -> bool:
    """Returns whether a script of TensorFlow 2 has to have the Keras of the package `keras` as `tf.keras`, too.

    It imports more of that package than data and functions; its models take no optimizers and layers of another
    Keras. Strategies of several processes know Keras 2 only.

    Raises:
      ConfigError: a file cannot be read.
    """
    if is_tensorflow_1(tf_mode, text_of(path)):  # without a look at what it imports
        return False
    text = _without_notes(text_with_imports(path, script))
    return _has_keras_classes(text) and not (
        _NEEDS_KERAS_2.search(text) or _OLD_CALLS.search(text) or is_script_tensorflow_1(tf_mode, path, script))


def _has_keras_classes(text: str) -> bool:
    used = [set(re.findall(rf"(?<![\w.]){name or 'keras'}\.(\w+)", text)) for name in _WHOLE_KERAS.findall(text)]
    return bool(_KERAS_CLASSES.search(text)) or any(
        not names or any(not re.match(_FITS_ANY_MODEL, name) for name in names) for names in used)


def uses_tf_keras(path: pathlib.Path, script: Script) -> bool:
    """Returns whether a script, or a local module that it imports, uses `tf.keras`.

    Raises:
      ConfigError: a file cannot be read.
    """
    return _TF_KERAS.search(_without_notes(text_with_imports(path, script))) is not None


def text_of(path: pathlib.Path) -> str:
    """Returns the text of a script, in any encoding.

    Raises:
      ConfigError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError("script_unreadable", f"ps_train run: cannot read {path}: {error.strerror}") from None


def text_with_imports(path: pathlib.Path, script: Script) -> str:
    """Returns the text of a script and of the local modules that it imports, directly or through others.

    Installed modules are left out: their flags are seldom those of a cluster. Nothing is imported: that may take long
    and need TensorFlow 1's names.
    """
    return "\n".join(_texts_with_imports(path, script))


def _texts_with_imports(path: pathlib.Path, script: Script) -> list[str]:
    """Returns the texts of a script and of these modules, that of the script first."""
    places = [pathlib.Path.cwd() if script.is_module else path.resolve().parent]
    places += [pathlib.Path(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    texts: dict[pathlib.Path, str] = {}
    pending = [path.resolve()]
    while pending and len(texts) < _MOST_MODULES:
        module = pending.pop(0)
        if module not in texts:
            texts[module] = text_of(module)
            pending += _imported_files(module, texts[module], places)
    return list(texts.values())


def _imported_files(module: pathlib.Path, text: str, places: Sequence[pathlib.Path]) -> Iterator[pathlib.Path]:
    for dots, package, names, modules in _IMPORT.findall(text):
        inner = [f"{package}.{name}" for name in re.findall(r"\w+", names)]
        imported = re.findall(r"[\w.]+", modules) or [package, *inner]
        for place in [module.parents[len(dots) - 1]] if 0 < len(dots) <= len(module.parents) else places:
            for name in imported:
                yield from _files_of(place, name)


def _files_of(place: pathlib.Path, name: str) -> Iterator[pathlib.Path]:
    """Yields the files that Python runs when it imports a module from a folder: its packages, then the module."""
    for part in filter(None, name.split(".")):
        place = place / part
        yield from (file.resolve() for file in (place / "__init__.py", place.parent / f"{part}.py") if file.is_file())


def defines_flag(text: str, name: str) -> bool:
    """Returns whether a script defines a flag, with absl, argparse or `tf.app.flags`, one by one or in a loop."""
    pattern = re.escape(name)
    is_there = re.search(rf"""['"]--{pattern}['"]|\bDEFINE_\w+\(\s*(name\s*=\s*)?['"]{pattern}['"]""", text)
    return is_there is not None or name in looped_flags.of(text)
