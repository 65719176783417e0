"""Calls of pandas as it was when TF1 code was written, in a process of their own: they change the whole process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.processes import REPO

pytest.importorskip("pandas")

USES = """\
import io
import numpy as np
import pandas as pd
from ps_train.parts.legacy.names import library
library.restore_all_of_pandas(pd)
f = pd.DataFrame({"a": [1, 2, 3.0], "b": ["x,y", "z", "w"], "c": [1, 1, 2]})
print(f.b.dtype, f.mean().tolist(), f[["a", "c"]].mean(1).tolist(), f.drop("a", 1).columns.tolist())
print(f.b.str.split(",", 1).tolist(), f.b.str.replace("[xz]", "Q").tolist(), f.b.str.replace(".", "Q").tolist())
print(f[["a", "c"]].applymap(lambda x: x + 1).values.tolist(), pd.value_counts([1, 1, 2]).tolist())
print(pd.Series([1, None, 3]).fillna(method="ffill").tolist(), pd.Series([1, None]).fillna(0).tolist())
print({str(dtype) for dtype in pd.get_dummies(f.c).dtypes}, f.corr().shape, f.groupby("c").mean().a.tolist())
print(f.pivot("a", "c", "b").columns.tolist(), pd.concat([f, f], 1).shape, f.sort_values("a", 0, False).a.tolist())
print(pd.read_csv(io.StringIO("a;b\\n1;2"), ";").values.tolist(), f.to_csv(None, ";").splitlines()[0], f.any(1).all())
g = pd.DataFrame({"a": [1.0, 2.0]})
g.loc[0, "a"] = ""
g.loc[1] = "x"
print(g.a.tolist(), g.a.dtype)
named = pd.Series([1, 2], index=["x", "y"])
named[0] = 7
days = pd.Series([3, 4], index=pd.date_range("2018-01-01", periods=2))
print(named[0], named[-1], named["x"], days[1], f.groupby("b").c.sum()[0], [row[0] for _, row in f.iterrows()])
named[2] = 9
print(named.index.tolist(), pd.Series([5, 6], index=pd.interval_range(2, 4))[3], days.dtype,
      pd.Series([5, 6], index=pd.Categorical(["x", "y"]))[1])
for labels in (pd.Categorical([3, 4]), pd.interval_range(2, 4), [True, False], pd.MultiIndex.from_tuples([(1, 2)] * 2)):
    try:
        print(pd.Series([5, 6], index=labels)[7])
    except (KeyError, IndexError) as error:
        print(type(error).__name__)
named = named.drop(2)
print(pd.Series([5, 6], index=[1, 2])[1], pd.Series([5, 6], index=[0.5, 1.5])[0.5], 0 in pd.Series([5], index=[1]))
try:
    pd.Series([5, 6], index=[1, 2])[0]
except KeyError as error:
    print(error)
print(pd.to_datetime(["2018-01-01", "01/02/2018"]).day.tolist(), pd.datetime(2018, 1, 3).day,
      pd.to_datetime(["2018-01-01"], infer_datetime_format=True).year.tolist())
try:
    pd.to_datetime(["2018-01-01", "01/02/2018"], format="%Y-%m-%d")
except ValueError as error:
    print("match" in str(error))
print(pd.to_datetime(["2018-01-01", "01/02/2018", "x"], errors="coerce").month.tolist()[:2],
      pd.to_datetime([1, 2], unit="D").day.tolist(), pd.isna(pd.to_datetime(["x", None], "coerce")).all())
for texts, options in ((["2018-01-01", "no date"], {}), (["1", "y"], {"unit": "D"})):
    try:
        pd.to_datetime(texts, **options)
    except ValueError as error:
        print("mixed" in str(error).split("You might")[0], len(str(error)) > 0)
print(g.set_value(0, "a", 9).a.tolist(), named.set_value("y", 8).tolist(), g.to_csv(line_terminator="|"))
pd.set_option("max_columns", 7)
print(pd.get_option("display.max_columns"))
try:
    pd.get_option("no_such")
except KeyError as error:
    print("'no_such'" in str(error))
matrix, values, column = g[["a"]][:1].as_matrix(), f[["a", "c"]].get_values(), f.c.as_matrix()
values -= values.mean(0)
matrix[0], column[0] = 3, 8
print(matrix.tolist(), values.tolist(), column.tolist(), f.a.get_values().flags.writeable)
k = pd.DataFrame({"k": ["x", "y", "x"], "t": ["q", "r", "s"], "v": [1, 2, 4], "b": [True, False, True]})
print(k.groupby("k").sum().to_dict(), k.groupby("k", as_index=False).sum().columns.tolist())
print(k.groupby("v")[["k", "t"]].sum().values.tolist(), k.groupby("k").t.sum().tolist())
print(k.groupby("k").agg("sum").columns.tolist(), k.groupby("k").sum(numeric_only=False).columns.tolist())
print(k.groupby("k").agg(np.mean).columns.tolist(), k.v.agg(np.std) == k.v.std() == k[["v"]].agg(np.std).v)
print(k.groupby("k").v.agg([np.mean, np.std, len]).round(3).values.tolist()[0],
      k.groupby("k").v.transform(sum).tolist())
print(k.groupby("k").agg({"v": np.std, "t": max}).values.tolist()[0], k.v.agg(lambda v: 7) is not None,
      pd.pivot_table(k, index="k", values="v", aggfunc=np.std).v.round(3).tolist()[0])
print(pd.read_csv(io.StringIO("a,b\\nNone,1\\n,2\\nNA,3")).a.tolist(),
      pd.read_table(io.StringIO("a\\nNone")).a.tolist())
try:
    f.drop("a", 1, 2, 3, 4, 5, 6, 7, 8, 9)
except TypeError as error:
    print("drop() takes" in str(error))
"""
EXPECTED = """\
object [2.0, 1.3333333333333333] [1.0, 1.5, 2.5] ['b', 'c']
[['x', 'y'], ['z'], ['w']] ['Q,y', 'Q', 'w'] ['x,y', 'z', 'w']
[[2.0, 2.0], [3.0, 2.0], [4.0, 3.0]] [2, 1]
[1.0, 1.0, 3.0] [1.0, 0.0]
{'uint8'} (2, 2) [1.5, 3.0]
[1, 2] (3, 6) [3.0, 2.0, 1.0]
[[1, 2]] ;a;b;c True
['', 'x'] object
7 2 7 4 2 [1.0, 2.0, 3.0]
['x', 'y', 2] 5 int64 6
KeyError
KeyError
KeyError
KeyError
5 5 False
0
[1, 2] 3 [2018]
True
[1.0, 1.0] [2, 3] True
False True
False True
[9, 'x'] [7, 8] ,a|0,9|1,x|
7
True
[[3]] [[-1.0, -0.33333333333333326], [0.0, -0.33333333333333326], [1.0, 0.6666666666666667]] [8, 1, 2] True
{'v': {'x': 5, 'y': 2}, 'b': {'x': 2, 'y': 0}} ['k', 'v', 'b']
[['x', 'q'], ['y', 'r'], ['x', 's']] ['qs', 'r']
['v', 'b'] ['t', 'v', 'b']
['v', 'b'] True
[2.5, 2.121, 2.0] [5, 2, 5]
[2.1213203435596424, 's'] True 2.121
['None', nan, nan] ['None']
True
"""


def test_calls_of_that_time_work():
    """By position, with methods that were removed, and of the numbers only; too many arguments are still an error."""
    ended = subprocess.run([sys.executable, "-c", USES], cwd=REPO, capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.returncode) == (EXPECTED, 0), ended.stderr
