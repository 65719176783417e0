"""Functions of numpy that scripts call through a wrapper."""

from __future__ import annotations

import types

import numpy as np
import pytest

from ps_train.parts.legacy import numpy_advice
from ps_train.parts.legacy.names import arrays
from ps_train.parts.legacy.names.arrays import ragged_array, reshape, restore_pandas, wrap
from ps_train.runtime import tracebacks

_SCRIPT = """\
def train():
    numbers.sort(5)
"""


def test_what_the_library_behind_a_wrapper_refuses_is_about_the_call(tmp_path):
    """The last line that failed is ps_train's, which has passed the call on."""
    numbers = types.SimpleNamespace(sort=sorted)
    wrap("sort", ragged_array, numbers)
    path = tmp_path / "script.py"
    path.write_text(_SCRIPT)
    scope = {"numbers": numbers}
    exec(compile(_SCRIPT, str(path), "exec"), scope)
    try:
        scope["train"]()
    except TypeError as error:
        trace, fault = tracebacks.report(error)
    assert fault.code == "user_code_failed" and trace[0] == tracebacks.HEADING


@pytest.mark.parametrize(("args", "kwargs"), [
    (([2, 3],), {}), (([2, 3], "F"), {}), ((), {"newshape": [2, 3]}), ((), {"newshape": [2, 3], "order": "F"})])
def test_reshape_takes_the_name_that_its_argument_had(args, kwargs):
    """Issue: numpy 2.4 refuses `newshape`."""
    is_by_column = "F" in [*args, *kwargs.values()]
    assert reshape(np.reshape, np.arange(6), *args, **kwargs)[0].tolist() == ([0, 2, 4] if is_by_column else [0, 1, 2])


@pytest.mark.parametrize(("axis", "shape"), [(1, (2, 1, 3)), (2, (2, 3, 1)), (4, (2, 3, 1)), (-1, (2, 3, 1))])
def test_an_axis_behind_the_last_one_is_the_last_one(axis, shape):
    """As np.expand_dims took it before numpy 1.18."""
    assert arrays.expand_dims(np.expand_dims, np.ones((2, 3)), axis).shape == shape


def test_an_array_is_copied_only_if_need_be():
    """copy=False means that since numpy 2 a copy is an error."""
    values = np.arange(3)
    assert np.shares_memory(arrays.array(np.array, values, copy=False), values)
    assert arrays.array(np.array, values, dtype=np.float32, copy=False).dtype == np.float32
    assert not np.shares_memory(arrays.array(np.array, values), values)


@pytest.mark.parametrize(("version_2", "expected"), [(True, None), (False, False)])
def test_numpy_1_gets_the_argument_as_the_script_wrote_it(version_2, expected, monkeypatch):
    """It refuses copy=None: "NoneType copy mode not allowed"."""
    monkeypatch.setattr(arrays, "_COPIES_IF_NEEDED", version_2)
    assert arrays.array(lambda value, copy: copy, [1], copy=False) is expected


def test_bytes_are_read_as_an_array_that_can_be_changed():
    """numpy 2.3 refuses bytes; numbers in a text are read as today."""
    values = arrays.fromstring(np.fromstring, b"\1\2\3", np.uint8, 2)
    values += 1
    assert values.tolist() == [2, 3]
    assert arrays.fromstring(np.fromstring, "\xff", dtype=np.uint8).tolist() == [255]
    assert arrays.fromstring(np.fromstring, np.float64(1.5).tobytes()).tolist() == [1.5]
    assert arrays.fromstring(np.fromstring, "1 2", dtype=int, sep=" ").tolist() == [1, 2]
    assert arrays.fromstring(np.fromstring, "1 2", float, -1, " ").tolist() == [1.0, 2.0]


def test_arrays_of_an_iterator_are_put_together():
    """As `map` made a list in Python 2."""
    assert arrays.stack(np.vstack, map(np.array, ([1], [2]))).tolist() == [[1], [2]]
    assert arrays.stack(np.concatenate, [[[1]], [[2]]], axis=1).tolist() == [[1, 2]]
    assert arrays.stack(np.vstack, tup=[[1], [2]]).tolist() == [[1], [2]]
    assert arrays.stack(np.stack, arrays=map(np.array, ([1], [2])), axis=1).tolist() == [[1, 2]]


def test_functions_and_tables_of_dtypes_that_numpy_has_removed():
    """Casts, sizes, kinds, a histogram's density, and a pad at its old place."""
    assert arrays.cast["float32"]([1, 2]).dtype == np.float32 and arrays.cast[np.int64](2.5) == 2
    assert (arrays.nbytes[np.float32], np.uint8 in arrays.sctypes["uint"]) == (4, True)
    assert arrays.find_common_type([np.float32, np.float64], []) == np.float64
    assert arrays.find_common_type([np.float32], [np.int64, np.float64]) == np.float32
    assert arrays.find_common_type([np.int32], [np.complex64]) == np.complex64
    density, edges = arrays.histogram(np.histogram, [1, 1, 3], bins=2, normed=True)
    assert density.tolist() == np.histogram([1, 1, 3], 2, density=True)[0].tolist() and edges.tolist() == [1, 2, 3]
    assert arrays.pad([1], 1).tolist() == [0, 1, 0] and arrays.pad([1], 1, "edge").tolist() == [1, 1, 1]


def test_rows_and_columns_of_a_table_by_label_or_position():
    """`.ix` of pandas until 0.25, and functions of that time."""
    pandas = pytest.importorskip("pandas")
    restore_pandas(types.SimpleNamespace(DataFrame=pandas.DataFrame, Series=pandas.Series, concat=pandas.concat,
                                         read_csv=pandas.read_csv))
    table = pandas.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6]}, index=["x", "y", "z"])
    assert (table.ix["y", "a"], table.ix[2, "b"], table.ix["z", 0], table.a.ix["x"]) == (2, 6, 3, 1)
    assert table.ix[:, "b"].tolist() == [4, 5, 6] and table.ix["x":"y", ["a"]].values.tolist() == [[1], [2]]
    assert table.ix[1:, 1].tolist() == [5, 6] and table.ix[table.a > 1, "b"].tolist() == [5, 6]
    table.ix["x", "a"] = 9
    assert table.a.tolist() == [9, 2, 3] and table.sort("a").a.tolist() == [2, 3, 9]
    numbered = pandas.DataFrame({"a": [1, 2, 3]}, index=[5, 6, 7])
    assert numbered.ix[6, "a"] == 2 and numbered.ix[5:6].a.tolist() == [1, 2]
    assert numbered.ix[[7, 5]].a.tolist() == [3, 1]


@pytest.mark.parametrize("name", ["percentile", "quantile", "nanpercentile", "nanquantile"])
def test_a_percentile_takes_its_interpolation(name):
    """The name of `method` until numpy 1.22."""
    function = getattr(np, name)
    for kind in ("lower", "higher", "nearest"):
        found = arrays.percentile_by(function, [1, 2, 5], 0.3, interpolation=kind)
        assert found == function([1, 2, 5], 0.3, method=kind)
    assert arrays.percentile_by(function, [[1, 2, 5]], 0.5, 1) == function([1, 2, 5], 0.5)


def test_a_file_that_was_opened_as_text_takes_an_array(tmp_path):
    """As in Python 2."""
    with open(tmp_path / "numbers.npy", "w") as file:
        arrays.save_array(np.save, file, np.arange(300))
    with open(tmp_path / "numbers.npy") as file:
        assert arrays.load(np.load, file).tolist() == list(range(300))
    arrays.save_array(np.savez, str(tmp_path / "more.npz"), a=np.ones(2))
    assert arrays.load(np.load, str(tmp_path / "more.npz"))["a"].tolist() == [1, 1]


@pytest.mark.parametrize(("make", "args", "kwargs", "expected"), [
    (np.array, ([-1, 300], np.uint8), {}, [255, 44]), (np.asarray, ([-1, 3],), {"dtype": "uint32"}, [2**32 - 1, 3]),
    (np.full, (2, -1, np.uint8), {}, [255, 255]), (np.full, ([1], 200), {"dtype": np.int8}, [-56]),
    (np.full_like, (np.zeros(1, np.uint8), -1), {}, [255]), (np.array, ([1, 2], np.uint8), {"ndmin": 1}, [1, 2]),
    (np.full_like, (np.zeros(1), -1, np.uint16), {}, [65535]),
    (np.array, (-1,), {"dtype": np.uint8, "ndmin": 1}, [255])])
def test_a_number_that_a_dtype_cannot_have_keeps_its_lowest_bits(make, args, kwargs, expected):
    """As numpy 1 made arrays; scripts write -1 for "none" among unsigned numbers."""
    made = arrays.with_lowest_bits(make, *args, **kwargs)
    wanted = next((value for value in [*args[1:], *kwargs.values()] if not isinstance(value, int)), np.uint8)
    assert made.tolist() == expected and made.dtype == wanted


def test_a_number_that_no_dtype_has_is_still_refused():
    """And the dtype in front of other arguments by position."""
    for args in (([2**70], np.uint8), ([300], np.uint8, np.array([1]))):
        with pytest.raises((OverflowError, TypeError)):
            arrays.with_lowest_bits(np.array, *args)


def test_numpys_refusal_of_a_number_says_what_to_do():
    """Of arithmetic and assignments, which no wrapper reaches; not of other errors."""
    if not arrays._COPIES_IF_NEEDED:
        pytest.skip("numpy 1 refuses none")
    for change in (lambda: np.zeros(2, np.uint8) - 300, lambda: np.zeros(2, np.uint8).__setitem__(0, -1),
                   lambda: np.uint8(300)):
        with pytest.raises(OverflowError) as refused:
            change()
        assert "uint8 cannot have" in numpy_advice.bounds_hint(refused.value)
    assert not numpy_advice.bounds_hint(OverflowError("cannot convert float infinity to integer"))
    assert not numpy_advice.bounds_hint(ValueError("Python integer 300 out of bounds for uint8"))


@pytest.mark.parametrize(("make", "args", "kwargs", "dtype"), [
    (np.empty, (2,), {"dtype": np.integer}, np.int_), (np.zeros, ([2], np.floating), {}, np.float64),
    (np.array, ([1, 0],), {"dtype": np.unsignedinteger}, np.uint), (np.ones, (2, np.int32), {}, np.int32),
    (np.asarray, ([1, 0], np.complexfloating), {}, np.complex128), (np.full, (2, 7, np.number), {}, np.float64)])
def test_an_abstract_type_is_a_dtype(make, args, kwargs, dtype):
    """As before numpy 2.4; what is no dtype at all is still refused."""
    made = arrays.of_abstract_dtype(make, *args, **kwargs)
    assert made.dtype == dtype and made.shape == (2,)
    with pytest.raises(TypeError):
        arrays.of_abstract_dtype(np.zeros, 2, dtype=np.generic if arrays._COPIES_IF_NEEDED else "no dtype")
