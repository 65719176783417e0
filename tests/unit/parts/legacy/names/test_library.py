"""Names of Python's library and of packages that scripts may still use."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import importlib.util
import random
import subprocess
import sys
import types

import numpy as np
import pytest

from ps_train.parts.legacy.names import library, plots
from tests.processes import REPO

USES = """\
import base64, collections, fractions, inspect, itertools, json, os, string, sys, threading, time, types, urllib
from ps_train.parts.legacy.names import library, plots
library.restore_python()
def function(a, b=1, *rest, **others): pass
print(issubclass(dict, collections.Mapping), time.clock() >= 0, tuple(inspect.getargspec(function)))
print(fractions.gcd(4, 6), base64.encodestring(b"x"), threading.Thread().isAlive(), os.errno.EEXIST > 0)
print(sys.maxint == sys.maxsize, list(itertools.izip([1], [2])), string.letters[:2], string.join(["a", "b"], "-"))
print(types.StringType is str, urllib.quote("a b"), callable(urllib.urlretrieve), json.loads("[1]", encoding="utf-8"))
sys.setdefaultencoding("utf8")
before = time.clock()
time.sleep(0.5)
print(time.clock() - before < 0.4)
import io, random
file, numbers = io.StringIO(), [1, 2, 3]
json.dump(obj=numbers, fp=file)
random.shuffle(x=numbers, random=lambda: 0)
random.seed(frozenset())
print(json.dumps(obj={"a": 1}), json.loads(s="[2]"), json.load(fp=io.StringIO(file.getvalue())), numbers)
"""
EXPECTED = """\
True True (['a', 'b'], 'rest', 'others', (1,))
2 b'eA==\\n' False True
True [(1, 2)] ab a-b
True a%20b True [1]
True
{"a": 1} [2] [1, 2, 3] [2, 3, 1]
"""


def test_what_python_has_lost_is_there():
    """In a process of its own, as it changes Python's library."""
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", USES], cwd=REPO, capture_output=True, text=True,
                           timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, EXPECTED), ended.stderr


def test_a_sample_of_a_set_and_of_the_keys_of_a_dictionary():
    """Python 3.11 refuses both."""
    owner = types.SimpleNamespace(sample=random.sample)
    library.wrap("sample", library._sample, owner)
    assert sorted(owner.sample({1, 2, 3}, 3)) == [1, 2, 3] and owner.sample({4: 0}.keys(), 1) == [4]
    assert owner.sample([7], 1) == [7] and owner.sample(range(9), 9) != []


def test_random_numbers_are_seeded_by_any_value_with_a_hash():
    """Python 3.11 refuses a date, and numpy's numbers; what it takes gives the numbers that it gave."""
    owner = types.SimpleNamespace(seed=random.Random.seed)
    library.wrap("seed", library._seed, owner)

    def number_of(seed):
        generator = random.Random(0)
        owner.seed(generator, seed)
        return generator.random()
    date = datetime.datetime(2017, 1, 2)
    assert number_of(date) == number_of(date) and number_of(np.int64(5)) == number_of(5) == random.Random(5).random()
    assert number_of("a") == random.Random("a").random()
    with pytest.raises(TypeError):
        number_of([1])


def test_yaml_is_loaded_without_a_loader():
    """Into Python's own objects."""
    yaml = pytest.importorskip("yaml")
    owner = types.SimpleNamespace(load=yaml.load, load_all=yaml.load_all)
    library.restore_yaml(owner)
    assert owner.load("{a: [1, 2]}") == {"a": [1, 2]} and list(owner.load_all("1\n---\n2\n")) == [1, 2]
    assert owner.load("5", yaml.SafeLoader) == 5 and owner.load("5", Loader=yaml.BaseLoader) == "5"
    with pytest.raises(yaml.YAMLError):
        owner.load("!!python/object/apply:os.getcwd []")


def test_pillow_has_the_names_of_its_filters():
    """Those that version 10 removed."""
    image = importlib.import_module("PIL.Image") if importlib.util.find_spec("PIL") else pytest.skip("needs Pillow")
    library.restore_pillow(image)
    assert (image.ANTIALIAS, image.LINEAR, image.CUBIC) == (image.LANCZOS, image.BILINEAR, image.BICUBIC)


def test_pillow_measures_text_as_before_10():
    """By the font and by the image; several lines are higher than one, and low letters have room above them."""
    fonts, drawing = pytest.importorskip("PIL.ImageFont"), pytest.importorskip("PIL.ImageDraw")
    library.restore_fonts(fonts)
    library.restore_drawing(drawing)
    font = fonts.load_default()
    left, top, right, bottom = font.getbbox("word")
    assert font.getsize("word") == (int(right - left), int(bottom)) and bottom > top >= 0
    draw = drawing.Draw(importlib.import_module("PIL.Image").new("RGB", (50, 50)))
    assert draw.textsize("word", font) == draw.textsize("word", font=font) == font.getsize("word")
    assert draw.multiline_textsize("two\nlines", font)[1] > draw.textsize("two", font)[1]


def test_h5py_files_are_made_and_read_as_before_3_0(tmp_path):
    """A file that is not there is made without a mode, one that is there is only read; a dataset has `value`."""
    pytest.importorskip("h5py")
    uses = f"""\
import h5py
from ps_train.parts.legacy.names import library, plots
library.restore_h5py(h5py)
with h5py.File({str(tmp_path / "x.h5")!r}) as file:
    file["numbers"] = [1, 2]
with h5py.File({str(tmp_path / "x.h5")!r}) as file:
    print(file["numbers"].value.tolist(), file.mode)
"""
    ended = subprocess.run([sys.executable, "-c", uses], cwd=REPO, capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.returncode) == ("[1, 2] r\n", 0), ended.stderr


def test_filters_take_arrays_of_numbers_and_arrays():
    """Of objects, as SciPy did: rewards that are numbers, and a prediction that is an array of one."""
    signal = pytest.importorskip("scipy.signal")
    uses = """\
import numpy as np, scipy.signal
from ps_train.parts.legacy.names import library, arrays
library.restore_signal(scipy.signal)
arrays.wrap("asarray", arrays.ragged_array, np)
mixed = np.empty(3, object)
mixed[:] = [1.0, 2.0, np.array([4.0])]
print(scipy.signal.lfilter([1], [1, -0.5], mixed, axis=0).tolist())
"""
    ended = subprocess.run([sys.executable, "-c", uses], cwd=REPO, capture_output=True, text=True, timeout=120)
    assert ended.stdout == f"{signal.lfilter([1], [1, -0.5], [1.0, 2.0, 4.0]).tolist()}\n", ended.stderr


def test_names_that_scipy_has_removed():
    """The windows of signal, attributes of sparse matrices, integrals, numpy's functions, and modules that moved."""
    pytest.importorskip("scipy")
    uses = """\
import numpy as np, scipy, scipy.integrate, scipy.signal, scipy.sparse
from ps_train.parts.legacy.names import library, plots
for name in ("scipy", "scipy.integrate", "scipy.signal", "scipy.sparse"):
    library.RESTORED[name](__import__("sys").modules[name])
matrix = scipy.sparse.csr_matrix([[1j, 2]])
print(matrix.A.tolist(), matrix.H.A.tolist())
print(scipy.signal.hamming(3).round(2).tolist(), scipy.signal.hanning(3).tolist())
print(scipy.integrate.trapz([1, 2, 3], [0, 1, 3]), scipy.integrate.cumtrapz([1, 2]).tolist(),
      scipy.integrate.simps([1, 2, 3]))
print(scipy.zeros(1).tolist(), scipy.log(-1).imag == np.pi, scipy.log(1), scipy.linalg is not np.linalg,
      callable(scipy.fft), scipy.rand(2).shape)
"""
    expected = ("[[1j, (2+0j)]] [[-1j], [(2+0j)]]\n[0.08, 1.0, 0.08] [0.0, 1.0, 0.0]\n6.5 [1.5] 4.0\n"
                "[0.0] True 0.0 True False (2,)\n")
    ended = subprocess.run([sys.executable, "-c", uses], cwd=REPO, capture_output=True, text=True, timeout=120)
    assert ended.stdout == expected, ended.stderr


def test_networkx_has_names_of_before_2_and_3():
    """Those that do the same today; subgraphs are graphs of their own."""
    nx = pytest.importorskip("networkx")
    library.restore_networkx(nx)
    graph = nx.Graph()
    graph.add_path([1, 2, 3])
    graph.add_edge(7, 7)
    graph.node[1]["colour"] = "red"
    assert graph.nodes[1] == {"colour": "red"} and list(graph.nodes_iter()) == [1, 2, 3, 7]
    assert list(graph.edges_iter(1, data=True)) == [(1, 2, {})] and list(graph.selfloop_edges()) == [(7, 7)]
    assert sorted(map(len, nx.connected_component_subgraphs(graph))) == [1, 3]
    matrix = nx.to_numpy_matrix(graph)
    assert isinstance(matrix, np.matrix) and nx.from_numpy_matrix(np.asarray(matrix)).number_of_edges() == 3


def test_scipy_has_functions_of_numpy_but_not_its_modules():
    """Except for `random`."""
    scipy = types.SimpleNamespace(__all__=["fft"], mean=len)
    library.restore_scipy(scipy)
    assert scipy.mean is len and scipy.zeros is np.zeros and scipy.random is np.random and scipy.sqrt(-1) == 1j
    assert [name for name, value in vars(scipy).items() if isinstance(value, types.ModuleType)] == ["random"]


def test_another_module_of_the_name_of_a_package_stays_as_it_is(caplog):
    """Such as a folder scipy beside the script; a line says so."""
    other = types.ModuleType("scipy")
    library.restore_package(other)
    assert not hasattr(other, "rand") and "scipy is not the package that ps_train knows" in caplog.text


def test_an_older_networkx_keeps_what_it_has():
    """Before 2.0, and before 2.7."""
    class Graph:
        node = {1: {}}

    nx = types.SimpleNamespace(Graph=Graph, from_numpy_matrix=len)
    library.restore_networkx(nx)
    assert Graph.node == {1: {}} and nx.from_numpy_matrix is len and not hasattr(Graph, "add_path")


def test_matplotlib_finds_colours_by_name():
    """At the place that 3.9 removed; with a number of colours, or a map as it is."""
    cm = pytest.importorskip("matplotlib.cm")
    plots.restore_colormaps(cm)
    assert cm.get_cmap("jet").name == "jet" and cm.get_cmap("jet", 5).N == 5
    assert cm.get_cmap(cm.get_cmap("jet")) == cm.get_cmap("jet") and cm.get_cmap().name == "viridis"


PLOTS = """\
import importlib, sys
import numpy as np
from ps_train.parts.legacy.names import plots
for name, restore in plots.RESTORED.items():
    restore(importlib.import_module(name))
matplotlib = sys.modules["matplotlib"]
matplotlib.use("Agg", warn=False, force=True)
import matplotlib.pyplot as plt
plt.style.use("seaborn-darkgrid")
plt.style.use(["seaborn", "seaborn-white"])
figure = plt.figure(figsize=(2, 1), dpi=100)
axes = plt.subplot(111, axisbg="r")
figure.canvas.set_window_title("a")
figure.canvas.draw()
pixels = np.frombuffer(figure.canvas.tostring_rgb(), np.uint8).reshape(100, 200, 3)
print(axes.get_facecolor()[:2], pixels[50, 100], plt.hold(True), axes.hold(False))
print(plt.hist([1, 1, 2], bins=[0, 2, 4], normed=True)[0], plt.hist([1], bins=[0, 2], normed=0)[0])
print(axes.hist([1], bins=[0, 2], density=True)[0])
def grid_of(*args, **kwargs):
    axes.grid(not args or not args[0])
    plt.grid(*args, **kwargs)
    return axes.xaxis.get_gridlines()[0].get_visible()
print(grid_of(b=True), grid_of(b=False), grid_of("on"), grid_of("off"), grid_of(True, which="both", axis="x"))
axes.xaxis.grid(b=False)
axes.yaxis.grid(True)
print(axes.xaxis.get_gridlines()[0].get_visible(), axes.yaxis.get_gridlines()[0].get_visible())
print(plt.gca() is axes, figure.gca(projection="3d").name, plt.gca(projection="3d") is figure.gca())
placed = [plt.figure().add_subplot("223"), plt.subplot("212"), plt.subplot(4 / 2, 2.0, "3"), plt.subplot(2, 2, (1, 3))]
print([(one.get_subplotspec().num1, one.get_subplotspec().num2) for one in placed], plt.subplot(2, 1, 2) is placed[1])
print(plt.figure().gca(projection="polar").name, plt.gca(polar=True) is plt.gca())
"""
PLOTTED = """\
(1.0, 0.0) [255   0   0] None None
[0.33333333 0.16666667] [1.]
[0.5]
True False True False True
False True
True 3d True
[(2, 2), (1, 1), (2, 2), (0, 2)] True
polar True
"""


def test_what_matplotlib_has_lost_is_there():
    """In a process of its own, as it changes matplotlib's classes."""
    pytest.importorskip("matplotlib")
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", PLOTS], cwd=REPO, capture_output=True, text=True,
                           timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, PLOTTED), ended.stderr


def test_several_contexts_are_entered_in_order():
    """And left in reverse, also after an error; what they gave is a tuple."""
    seen = []

    @contextlib.contextmanager
    def context(name):
        seen.append(name)
        try:
            yield name
        finally:
            seen.append(name.upper())
    with library.nested(context("a"), context("b")) as (first, second):
        assert (first, second) == ("a", "b")
    with pytest.raises(KeyError), library.nested(context("c"), context("d")):
        raise KeyError
    assert seen == ["a", "b", "B", "A", "c", "d", "D", "C"]


def test_pairs_with_the_least_cost():
    """As scikit-learn found them; of a matrix with fewer columns than rows, too."""
    pytest.importorskip("scipy")
    from ps_train.parts.legacy.names.linear_assignment import linear_assignment  # noqa: PLC0415 (needs SciPy)

    assert linear_assignment([[4, 1, 3], [2, 0, 5], [3, 2, 2]]).tolist() == [[0, 1], [1, 0], [2, 2]]
    assert linear_assignment([[1, 2], [2, 1], [0, 9]]).tolist() == [[1, 1], [2, 0]]
