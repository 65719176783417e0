"""What ps_train reads in a script before it runs."""

from __future__ import annotations

import sys

import pytest

from ps_train.parts.legacy import source
from ps_train.parts.legacy.flags import Script
from tests.errors import raises


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a package that only imports where TensorFlow 1's names are."""
    package = tmp_path / "of_the_user"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("import tensorflow.contrib.nowhere\n")
    (package / "train.py").write_text("")
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "__main__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.parametrize(("name", "file"), [
    ("of_the_user.train", "of_the_user/train.py"),
    ("of_the_user.inner", "of_the_user/inner/__main__.py"),
])
def test_a_module_is_found_without_importing_its_package(folder, name, file):
    """The package may need TensorFlow 1's names, which are not there yet."""
    assert source.find(Script(name, True, ())) == folder / file
    assert "of_the_user" not in sys.modules


@pytest.mark.parametrize("name", [
    "of_the_user", "of_the_user.none", "of_the_user.train.none", "none.train", "sys", ".", "of_the_user.",
])
def test_what_is_no_module_to_run_is_refused(folder, name):
    """A package without `__main__`, a module that is not a file, a name that is none."""
    with raises("script_not_found"):
        source.find(Script(name, True, ()))


def test_a_script_that_cannot_be_read_is_one_line(tmp_path):
    """Here it is a folder; a file without the right to read it is the same."""
    with raises("script_unreadable"):
        source.text_of(tmp_path)


@pytest.mark.parametrize(("text", "is_defined"), [
    ('tf.app.flags.DEFINE_string("job_name", "", "ps or worker")', True),
    ("flags.DEFINE_enum(\n    'job_name', None, JOBS, '')", True),
    ("DEFINE_string(name='job_name', default='')", True),
    ("parser.add_argument('--job_name')", True),
    ("parser.add_argument('-j', \"--job_name\", type=str)", True),
    ("options = {'job_name': name}", False),
    ("options['job_name']", False),
    ("parser.add_argument('--job_names')", False),
    ("DEFINE_string('a', 'job_name')", False),
])
def test_a_flag_is_known_by_its_definition(text, is_defined):
    """A dictionary with such a key defines none: the script would refuse the flag."""
    assert source.defines_flag(text, "job_name") is is_defined


@pytest.mark.parametrize("text", [
    'for name, default in [("ps_hosts", ""), ("job_name", "")]:\n    flags.DEFINE_string(name, default, "")',
    'for name in ("ps_hosts", "job_name"):\n    parser.add_argument("--" + name, type=str)',
    'for name in ("ps_hosts", "job_name"):\n    parser.add_argument(f"--{name}")',
    'for name in ("--ps_hosts", "--job_name"):\n    parser.add_argument(name)',
    'NAMES = {"job_name": "", "ps_hosts": ""}\nfor name in sorted(NAMES):\n    flags.DEFINE_string(name, "", "")',
    'NAMES = {"job_name": ""}\nfor name, value in NAMES.items():\n    DEFINE_string(name=name, default=value)',
    '[flags.DEFINE_string(name, "", "") for name in ["job_name", "ps_hosts"]]',
    'def flag(kind, name):\n    flags.DEFINE_string(name, "", kind)\nflag("a job", "job_name")',
    'def flag(name, kind=str):\n    parser.add_argument("--%s" % name)\nfor name in ["job_name"]:\n    flag(name)',
    'class Flags:\n  def add(self, name):\n    self.parser.add_argument("--" + name)\nFlags().add("job_name")',
    'define = tf.app.flags.DEFINE_string\ndefine("job_name", "", "")',
], ids=["pairs", "sum", "f-string", "with dashes", "names elsewhere", "items", "comprehension", "function",
        "function in a loop", "method", "alias"])
def test_a_flag_that_is_defined_in_a_loop_or_by_a_function_is_found(text):
    """Issue: `launch run` gave a script TF_CONFIG, whose flags were made by a loop over pairs of name and default."""
    assert source.defines_flag(text, "job_name")


@pytest.mark.parametrize("text", [
    'for name in ("ps_hosts", "job_name"):\n    print(name)\nflags.DEFINE_string("other", "", "")',
    'for name in ["other"]:\n    flags.DEFINE_string(name, "", "")\nvalues["job_name"] = 1',
    'for job in ["job_name"]:\n    for name in ["other"]:\n        flags.DEFINE_string(name, job, "")',
    'def flag(name, value):\n    flags.DEFINE_string(name, value, "")\nflag("other", "job_name")',
    'parser.add_argument("job_name")',
    'for name in ["job_name"]:\n    parser.add_argument(name)',
    'print "for name in (\'job_name\',): DEFINE_string(name)"',
], ids=["no definition", "another string", "a default", "another argument", "positional",
        "positional in a loop", "Python 2"])
def test_a_string_in_another_place_is_no_flag(text):
    """A flag that a script does not define, given to it, ends it."""
    assert not source.defines_flag(text, "job_name")


FLAGS = 'flags.DEFINE_string("job_name", "", "ps or worker")'


@pytest.mark.parametrize(("script", "module"), [
    ("import settings", "settings.py"),
    ("import os, settings as own", "settings.py"),
    ("from settings import FLAGS", "settings.py"),
    ("from lib import (\n    other,\n    settings)", "lib/settings.py"),
    ("    from lib.settings import FLAGS  # inside a function", "lib/settings.py"),
    ("import lib.deep.settings", "lib/__init__.py"),
    ("from lib import train", "lib/settings.py"),
], ids=["import", "several", "from", "submodule", "inner", "package", "through another"])
def test_flags_are_found_in_modules_next_to_the_script(tmp_path, script, module):
    """Issue: each task trained alone, with 0, as flags were looked for in the text of the main script only."""
    (tmp_path / "lib").mkdir()
    files = {"main.py": script, "lib/__init__.py": "", "lib/train.py": "from .settings import FLAGS\n", module: FLAGS}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    path = tmp_path / "main.py"
    assert not source.defines_flag(source.text_of(path), "job_name")
    assert source.defines_flag(source.text_with_imports(path, Script(str(path), False, ())), "job_name")


def test_modules_that_import_each_other_are_read_once(tmp_path):
    """And a comment or a missing module does no harm."""
    (tmp_path / "main.py").write_text("import other\nimport nowhere.at.all\n# import hidden\nfrom . import other\n")
    (tmp_path / "other.py").write_text("import main, other\nfrom ........... import main\n")
    (tmp_path / "hidden.py").write_text(FLAGS)
    path = tmp_path / "main.py"
    text = source.text_with_imports(path, Script(str(path), False, ()))
    assert text.count("nowhere") == 1 and "job_name" not in text


@pytest.mark.parametrize(("text", "is_tf1"), [
    ("import tensorflow as tf\ntf.Session()", True),
    ("import tensorflow.compat.v1 as tf", True),
    ("strategy = tf.distribute.MultiWorkerMirroredStrategy()", False),
    ("model = tf.keras.Sequential()\nsession = tf.compat.v1.Session()", True),
    ("print(1)", True),
    ("import keras\nimport horovod.keras as hvd\nhvd.init()", True),
    ("import horovod.tensorflow.keras as hvd\nkeras = tf.keras\ngpus = tf.config.experimental", False),
    ("import horovod.tensorflow as hvd\nhvd.DistributedGradientTape(tape)", False),
    ("from keras.layers.core import Dense", True),
    ("from keras.models import Sequential\nmodel.fit(x, y, nb_epoch=3)", True),
    ("import keras\nmodel.compile(keras.optimizers.Adam(lr=0.1))", True),
    ("import keras\nmodel.compile(keras.optimizers.Adam(learning_rate=0.1))", False),
    ("from tensorflow import keras\nmodel.compile(keras.optimizers.Adam(lr=0.1))", False),
    ("from keras.utils.np_utils import to_categorical\n@tf.function\ndef step(): pass", False),
    ("import keras\nlr = 1e-3\nkeras.optimizers.Adam(learning_rate=lr)\nkeras.ops.ones(3)", False),
    ("from keras.models import Sequential\nlr = 0.1\nprint(model(x).numpy())", False),
    ("from keras.wrappers import SKLearnClassifier", False),
    ("import keras\ndef batch_generator(n): yield n\nmodel.compile(metrics=['acc'])", False),
    ("import keras\nfrom mydb import get_session\nget_session()", False),
    ("import tensorflow as tf, keras\nmodel.fit_generator(data)", True),
    ("from keras import backend as K\nstep = K.function([x], [y])", True),
    ("from keras import backend as K\nloss = K.mean(K.square(y))", True),
    ("from keras import backend as K\nK.clear_session()", False),
    ("from keras.layers import Convolution2D\nConvolution2D(8, 3, 3)", True),
    ("import tensorflow as tf\ntf.enable_eager_execution()\ntf.keras.Sequential()\ntf.GradientTape()", True),
    ("from keras.models import Model\ntf.set_random_seed(1)", True),
    ("from keras.models import Model\nloss = -tf.reduce_mean(tf.log(p))", True),
    ("import keras\nx = tf.math.log(tf.random.truncated_normal([2])) + tf.random_normal_initializer()([2])", False),
    ("import keras\ntry:\n  tf.random.set_seed(1)\nexcept AttributeError:\n  tf.set_random_seed(1)", False),
    ("import keras\ngfile = tf.io.gfile if hasattr(tf, 'io') else tf.gfile", False),
    ("import keras\nif hasattr(tf, 'gfile'):\n  files = tf.gfile\nelse:\n  files = tf.io.gfile", False),
    ("import keras\ntry:\n  log = tf.log\nexcept AttributeError:\n  log = tf.math.log", False),
    ("import keras\nnormal = tf.random.normal if IS_TF2 else tf.random_normal", False),
    ("import keras\nif tf.__version__ < '2':\n  tf.py_func(f)\nelse:\n  tf.numpy_function(f)", False),
    ("import keras\nx = tf.to_float(x) if hasattr(tf, 'to_float') else tf.cast(x, tf.float32)", False),
    ("import keras\nif hasattr(tf, 'to_float'):\n  x = tf.to_float(x)", False),
    ("import keras\nprint(tf.__version__)\nx = tf.math.log(tf.to_float(y))", True),
    ("import keras\nx = tf.math.log(y) + tf.log(z)", True),
    ("from keras.preprocessing.text import Tokenizer", True),
    ("from keras.preprocessing import text", True),
    ("from keras.preprocessing.sequence import pad_sequences", False),
    ("from keras.callbacks import EarlyStopping\nEarlyStopping(monitor='val_acc')", True),
    ("from keras.callbacks import EarlyStopping\nEarlyStopping('val_acc', patience=1)", True),
    ("import keras\npath = 'best.hdf5'\nkeras.callbacks.ModelCheckpoint(path)", True),
    ("import keras\nkeras.callbacks.ModelCheckpoint('best-{epoch}.h5')", True),
    ("import keras\nkeras.callbacks.ModelCheckpoint('best.weights.h5')", False),
    ("import keras\nh5py.File('data.hdf5')", False),
    ("import keras\nkeras.callbacks.ModelCheckpoint(os.path.join(str(folder), 'best.h5'), verbose=1)", True),
    ("import keras\nname = 'best.h5'\npath = os.path.join(\n  d, name)\nkeras.callbacks.ModelCheckpoint(path)", True),
    ("import keras\ndef fit(self, best='best.h5'):\n  keras.callbacks.ModelCheckpoint(filepath=best)", True),
    ("import keras\nadd_argument('--best-model',\n  default='a.h5')\nModelCheckpoint(flags.best_model)", True),
    ("import keras\nkeys = {'best': 'a.h5'}\nModelCheckpoint(keys['best'])", True),
    ("import keras\nModelCheckpoint(os.path.join(os.path.expanduser('~/.keras'), 'a.h5'))", True),
    ("import keras\nh5py.File('train.h5')\nkeras.callbacks.ModelCheckpoint('best.weights.h5')", False),
    ("import keras\npath = 'train.h5'\nkeras.callbacks.ModelCheckpoint(os.path.join(d, 'best.weights.h5'))", False),
    ("import keras\nModelCheckpoint('best.keras')\nkeras.models.load_model('old.h5')\nmetrics=['acc']", False),
    ("import keras\nmodel.save('best.keras')\nhistory.history['val_acc']", False),
    ("import keras\nclass Data(keras.utils.PyDataset): pass\nhistory.history['val_acc']", False),
    ("from keras import layers, ops\nhistory.history['val_acc']", False),
    ("import keras\nsys.modules['tensorflow.keras'] = keras\nhistory.history['val_acc']", True),
    ("import keras  # not tf.Session, nor model.fit_generator(x)\nkeras.ops.ones(3)", False),
    ('"""Replaces tf.contrib\nand tf.Session."""\n@tf.function\ndef step(): pass', False),
    ("import keras  # no model.fit_generator(x)", False),
    ("import keras\n# optimizer = tf.train.RMSPropOptimizer(lr)", True),
    ("import tensorflow as tf  # as in keras\ntf.constant(1)", True),
    ("name = 'a#b'; tf.Session(); keras = 1", True),
    ("tf.compat.v1.logging.set_verbosity('ERROR')\n@tf.function\ndef step(): pass", False),
    ("from tensorflow.compat.v1 import logging\nwith tf.GradientTape() as tape: pass", False),
    ("from tensorflow.python.client import device_lib\nstrategy = tf.distribute.MirroredStrategy()", False),
    ("tf.compat.v1.enable_v2_behavior()\nmodel = tf.keras.Sequential()", False),
    ("tf.compat.v1.disable_v2_behavior()\nstrategy = tf.distribute.MirroredStrategy()", True),
    ("strategy = tf.distribute.MirroredStrategy()\ntf.compat.v1.Session()", True),
    ("strategy = tf.distribute.MirroredStrategy()\ntf.estimator.RunConfig(train_distribute=strategy)", True),
])
def test_the_names_that_a_script_uses_decide_its_tensorflow(text, is_tf1):
    """If nothing shows it, it is TensorFlow 1. Keras shows TensorFlow 2, unless it is an old one, or with Horovod.

    Comments and documentation show at most that nothing of TensorFlow 2 was there yet.
    """
    assert source.is_tensorflow_1("auto", text) is is_tf1


@pytest.mark.parametrize(("trainer", "mode", "is_tf1"), [
    ("import horovod.keras as hvd", "auto", True),
    ("import horovod.tensorflow as hvd\ntf.GradientTape()", "auto", False),
    ("tf.Session()", "auto", True),
    ("tf.Session()", "2", False),
    ("tf.log(x)", "auto", True),
    ("import keras\nmodel.fit_generator(x)", "auto", True),
    ("from tensorflow.python.client import device_lib\ntf.compat.v1.Session()", "auto", False),
    ("@tf.function\ndef step(x): return tf.log(x)", "auto", False),
    ("@tf.function\ndef step(): pass\nif hasattr(tf, 'ConfigProto'): tf.Session(tf.ConfigProto())", "auto", False),
    ("tf.random.set_seed(1)\ndef input_fn(): return tf.estimator.inputs.numpy_input_fn", "auto", False),
    ("tf.enable_eager_execution()\nwith tf.GradientTape() as tape: pass", "auto", True),
    ("strategy = tf.distribute.MirroredStrategy()\ntf.estimator.RunConfig(train_distribute=strategy)", "auto", True),
    ("import tensorflow.compat.v1 as tf\ntf.gfile.Open(path)", "auto", False),
    ("from tensorflow.compat import v1 as tf\ntf.Session()", "auto", False),
    ("import tensorflow as tf\ntf = tf.compat.v1\ntf.Session()", "auto", False),
    ("import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\ntf.Session()", "auto", True),
    ("import tensorflow.compat.v1 as tf\ntf.placeholder(tf.float32)\ntf.Session()", "auto", True),
    ("import tensorflow.compat.v1 as tf, os\nserver = tf.train.Server(cluster)", "auto", True),
    ("import tensorflow.compat.v1 as tf\nwith tf.Graph().as_default(): tf.placeholder(tf.float32)", "auto", False),
    ("import tensorflow as tf\nimport tensorflow.compat.v1 as tf1\ntf.Session()", "auto", True),
    ("import horovod.keras as hvd", "2", False),
])
def test_the_modules_beside_a_script_of_keras_count(tmp_path, trainer, mode, is_tf1):
    """Issue: the session, or the import of Horovod, is often in one of these, and the script has only Keras's data."""
    (tmp_path / "trainer.py").write_text(trainer)
    path = tmp_path / "main.py"
    path.write_text("from keras.datasets import mnist\nimport trainer\n")
    assert source.is_script_tensorflow_1(mode, path, Script(str(path), False, ())) is is_tf1


@pytest.mark.parametrize(("name", "is_tf1"), [("tf.Session()", True), ("tf.log(x)", False)])
def test_each_module_beside_a_script_is_judged_alone(tmp_path, name, is_tf1):
    """Issue: a module with a name of TensorFlow 2 hid, or was hidden by, what another one has."""
    (tmp_path / "trainer.py").write_text(name)
    (tmp_path / "helper.py").write_text("@tf.function\ndef step(x): pass\nconfig = tf.ConfigProto()")
    path = tmp_path / "main.py"
    path.write_text("from keras.datasets import mnist\nimport helper, trainer\n")
    assert source.is_script_tensorflow_1("auto", path, Script(str(path), False, ())) is is_tf1


def test_the_modules_beside_a_script_of_tensorflow_2_do_not_count(tmp_path):
    """They may be unused."""
    (tmp_path / "trainer.py").write_text("tf.Session()")
    path = tmp_path / "main.py"
    path.write_text("import keras\nimport trainer\nwith tf.GradientTape() as tape: pass\n")
    assert not source.is_script_tensorflow_1("auto", path, Script(str(path), False, ()))


@pytest.mark.parametrize(("script", "module", "is_one"), [
    ("import keras\nimport tensorflow as tf\ntf.keras.optimizers.SGD(0.1)", "", True),
    ("import tensorflow as tf, keras", "", True),
    ("from keras.layers import Dense\nstrategy = tf.distribute.MirroredStrategy()", "", True),
    ("from keras import layers\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()", "", False),
    ("from keras import layers", "strategy = tf.distribute.experimental.ParameterServerStrategy()", False),
    ("import keras\ntf.keras.optimizers.legacy.SGD(0.1)", "", False),
    ("from keras.datasets import mnist\ntf.keras.optimizers.SGD(0.1)", "", False),
    ("import keras.utils as utils\ntf.keras.optimizers.SGD(0.1)", "", False),
    ("from keras import datasets\ntf.keras.optimizers.SGD(0.1)", "", False),
    ("from keras import (\n    datasets as data,\n    utils,\n)\ntf.keras.optimizers.SGD(0.1)", "", False),
    ("from keras import datasets, layers\ntf.keras.optimizers.SGD(0.1)", "", True),
    ("from keras import layers, datasets\ntf.keras.optimizers.SGD(0.1)", "", True),
    ("import keras\nkeras.datasets.mnist.load_data()\ntf.keras.optimizers.SGD(0.1)", "", False),
    ("import os, keras as k\nk.utils.to_categorical(y)\ntf.keras.optimizers.SGD(0.1)", "", False),
    ("import keras as k\nk.utils.to_categorical(y)\nk.layers.Dense(1)", "", True),
    ("import keras.layers, os\ntf.keras.optimizers.SGD(0.1)", "", True),
    ("from keras.utils import PyDataset\ntf.keras.Sequential()", "", True),
    ("import keras\ntf.function(step)\nkeras.optimizers.SGD(lr=0.1)", "", False),
    ("tf.keras.optimizers.SGD(0.1)", "from keras.layers import Dense", True),
    ("from tensorflow import keras", "", False),
    ("# import keras\ntf.keras.Sequential()", "", False),
    ("import keras\ntf.Session()", "", False),
])
def test_a_script_that_imports_keras_has_one_keras(tmp_path, script, module, is_one):
    """Issue: models of Keras 3 refuse an optimizer of tf.keras, which was Keras 2."""
    (tmp_path / "layers_of_mine.py").write_text(module)
    path = tmp_path / "main.py"
    path.write_text(f"{script}\nimport layers_of_mine\n")
    assert source.needs_one_keras("auto", path, Script(str(path), False, ())) is is_one
