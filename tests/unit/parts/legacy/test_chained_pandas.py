"""Changes of a column by way of the column."""

from __future__ import annotations

import ast
import sys
import types

import numpy as np
import pytest

from ps_train.parts.legacy import chained_pandas

pandas = pytest.importorskip("pandas")


def run(text, **names):
    """Runs a changed text, and returns its names."""
    chained_pandas.install_chains()
    tree = ast.parse(text)
    assert chained_pandas.change_chains(tree)
    scope = {"pd": pandas, **names}
    exec(compile(ast.fix_missing_locations(tree), "script.py", "exec"), scope)
    return scope


def table():
    return pandas.DataFrame({"age": [1.0, None, 120.0], "name": ["a", "b", "c"]}, index=[5, 6, 7])


def test_a_column_is_changed_in_place():
    """By its name in brackets or as an attribute; the other columns and the rows stay."""
    f = run("f['age'].fillna(0, inplace=True)\nf.name.replace('a', 'z', inplace=True)\n"
            "f.age.clip(upper=99, inplace=True)\n",
            f=table())["f"]
    assert f.age.tolist() == [1, 0, 99] and f.name.tolist() == ["z", "b", "c"] and f.index.tolist() == [5, 6, 7]


def test_values_are_set_in_a_column():
    """Those of a mask, of a slice, and of one row; the new value is computed first."""
    f = run("f['age'][f['age'] > 99] = 99\nf.name[1:] = 'x'\nf['age'][6] = f['age'].sum()\n", f=table())["f"]
    assert f.age.tolist() == [1, 100, 99] and f.name.tolist() == ["a", "x", "x"]


@pytest.mark.parametrize(("text", "expected"), [
    ("f['age'].loc[f['age'] > 99] = 99", [1, 5, 99]), ("f.age.iloc[0] = 9", [9, 5, 120]),
    ("f['age'].at[7] = 9", [1, 5, 9]), ("f.age.iat[-1] = 9", [1, 5, 9]), ("f['age'].iloc[1:] = 2", [1, 2, 2]),
    ("f['age'][f['age'] > 1] += 10", [1, 15, 130]), ("f.age.loc[5] -= 1", [0, 5, 120]),
    ("f.age[6] /= 2", [1, 2.5, 120]),
    ("f['age'].update(pd.Series([8.0], index=[6]))", [1, 8, 120]),
    ("f['age'][5], other = 7, 8", [7, 5, 120]), ("(f.age[5], [f['age'].iloc[1], other]) = 7, (6, 5)", [7, 6, 120]),
    ("f['age'][5] = f['age'][6] = 3", [3, 3, 120])])
def test_a_part_of_a_column_is_changed_in_whatever_way(text, expected):
    """Issue: only `column[...] = value` had an effect; all of these had one until pandas 2."""
    assert run(f"f['age'] = [1.0, 5.0, 120.0]\n{text}\n", f=table())["f"].age.tolist() == expected


@pytest.mark.parametrize("owner", ["data.f", "tables['x']", "load()", "tables['all'].f", "data.load().f"])
def test_a_frame_is_an_attribute_an_item_or_a_result(owner):
    """Issue: only a frame that was a plain name was changed by `frame.column`."""
    class Data:
        def load(self):
            return self

    data, f = Data(), table()
    data.f = f
    run(f"{owner}.age.fillna(0, inplace=True)\n{owner}.age[{owner}.age > 99] = 99\n{owner}.age.loc[5] += 2\n"
        f"{owner}.name.iloc[0] = 'z'\n{owner}.loc[6, 'name'] = 'y'\n",
        data=data, tables={"x": f, "all": data}, load=lambda: f)
    assert f.age.tolist() == [3, 0, 99] and f.name.tolist() == ["z", "y", "c"]


def test_a_frame_of_an_object_is_changed_in_its_methods():
    """Other attributes of attributes, also private ones, stay right."""
    names = run("class Data(object):\n    def __init__(self, f, net):\n        self.frame, self.net = f, net\n"
                "        self.__own = net\n    def clean(self):\n        self.frame.age.fillna(0, inplace=True)\n"
                "        self.frame.age[self.frame.age > 99] = 99\n        self.net.weights[0] += 5\n"
                "        self.__own.weights[1:] = [7]\n        self.net.sizes[0], last = 3, 4\n"
                "        self.net.own.update({'b': last})\n"
                "data = Data(f, net)\ndata.clean()\n",
                f=table(), net=types.SimpleNamespace(weights=[1, 2, 3], sizes=[0], own={}))
    assert names["f"].age.tolist() == [1, 0, 99] and names["net"].weights == [6, 7] and names["net"].sizes == [3]
    assert names["net"].own == {"b": 4}


def test_code_that_is_no_column_s_stays_right():
    """Issue: private attributes, a variable `slice` and arrays of one number failed beside an import of pandas."""
    names = run("class A(object):\n    __rows = {}\n    @classmethod\n    def put(cls, k, v): cls.__rows[k] = v\n"
                "    @classmethod\n    def get(cls): return cls.__rows\n"
                "A.put('a', 5)\nrows = A.get()\nslice = 7\nd['x'][1:] = [slice]\nd['loss'][0] = np.array([1.5])\n"
                "same = d['x']\nd['x'] += [8]\nd['x'][0] += 1\nd['rows'][0] += [2]\nd['own'].update({'b': 2})\n",
                np=np, d={"x": [1, 2, 3], "loss": np.zeros(1), "rows": [[1]], "own": {}})
    d = names["d"]
    assert names["rows"] == {"a": 5} and d["x"] == [2, 7, 8] and d["x"] is names["same"] and d["loss"].tolist() == [1.5]
    assert d["rows"] == [[1, 2]] and d["own"] == {"b": 2}


@pytest.mark.parametrize("version, is_set, is_copied", [
    ("3.1.1", False, True), ("2.3.3", False, False), ("2.3.3", True, True), ("1.4.0", None, False)])
def test_columns_that_are_no_copies_are_changed_as_it_is_written(monkeypatch, version, is_set, is_copied):
    """Issue: `ages = frame.age` kept the old values under pandas 2, as the frame got another column."""
    class Frame(dict):
        columns = property(dict.keys)

    class Column(list):
        def fillna(self, value, inplace):
            self[:] = [value if item is None else item for item in self]

        def copy(self):
            return Column(self)

    mode = types.SimpleNamespace() if is_set is None else types.SimpleNamespace(copy_on_write=is_set)
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(
        __version__=version, options=types.SimpleNamespace(mode=mode), DataFrame=Frame, Series=Column))
    ages = Column([1, None, 120])
    frame = run("f['age'][2] = 99\nf['age'][0] += 1\n", f=Frame(age=ages))["f"]
    assert frame["age"] == [2, None, 99] and (frame["age"] is not ages) == is_copied
    if not is_copied:
        run("f['age'].fillna(0, inplace=True)\n", f=frame)
        assert ages == [2, 0, 99]


@pytest.mark.parametrize("image", ["net.image", "nets[0].image", "load().image", "net.images['a']"])
def test_an_array_beside_columns_takes_a_list_of_slices(image):
    """Issue: in a module that names pandas, `self.net.image[crop] = 0` failed; slice_lists.py did not see it."""
    net = types.SimpleNamespace(image=np.zeros([2, 3]))
    net.images = {"a": net.image}
    run(f"crop = [slice(0, 2), 1]\n{image}[crop] = 4\n{image}[crop] += 1\n{image}[[slice(1, 2), 0]], last = 7, 8\n"
        f"{image}[crop][0] = one\n", net=net, nets=[net], load=lambda: net, one=np.array([9.0]))
    assert net.image.tolist() == [[0, 9, 0], [7, 5, 0]]


def test_an_operand_is_computed_after_the_item():
    """As Python does it, and each part of the place once."""
    names = run("def key():\n    calls.append('key')\n    return 'x'\ndef value():\n    d['x'][0] = 100\n    return 1\n"
                "d[key()][0] += value()\n", d={"x": [1]}, calls=[])
    assert names["d"] == {"x": [2]} and names["calls"] == ["key"]


def test_other_objects_are_changed_as_it_is_written():
    """Lists in lists and in dictionaries, arrays of an object, several axes, and a method of another kind."""
    class Thing:
        def __init__(self):
            self.calls = []

        def fillna(self, value, inplace):
            self.calls.append((value, inplace))

    names = run("rows[0][1] = 5\nd['x'][:2] = [7, 8]\nthing.grid[0, 1:] = 9\nthings['a'].fillna(3, inplace=True)\n",
                rows=[[1, 2]], d={"x": [1, 2, 3]}, things={"a": Thing()}, thing=pandas.Series(
                    {"grid": np.zeros((2, 3))}))
    assert names["rows"] == [[1, 5]] and names["d"] == {"x": [7, 8, 3]} and names["things"]["a"].calls == [(3, True)]
    assert names["thing"]["grid"].tolist() == [[0, 9, 9], [0, 0, 0]]


@pytest.mark.parametrize("text", [
    "a.parent[x], x = 1, 2\n", "d[i]['a'], i = 2, 1\n", "f['a'][0], f.b = 1, 2\n",
    "f['x'] = 1\n", "f['x'].fillna(0)\n", "y = f['x'].fillna(0, inplace=True)\n", "f.fillna(0, inplace=True)\n",
    "self.rows[0] = 1\n", "f.loc[0, 'x'].sort_values(inplace=True)\n",
    "self.frame.fillna(0, inplace=True)\n", "self.__a.__b[0] = 2\n",
    "d.update(a=1)\n", "d['x'].update(a=1)\n", "a[0] += 2\n", "a.__b[0] = 2\n", "a, b[0] = 1, 2\n",
    "f['x'].dropna(inplace=True)\n", "a[1:2][0] = 3\n"])
def test_other_statements_stay(text):
    """Of a frame, without inplace, of parts that are no columns, what changes the rows, and what needs an order."""
    assert not chained_pandas.change_chains(ast.parse(text))
