"""What a model says about its tables: arguments, names, and the errors of wrong ones."""

from __future__ import annotations

import numpy as np
import pytest

import ps_train
from ps_train.embeddings import registry, rules
from ps_train.errors import UserCodeError
from tests.tensorflow_mode import tf


@pytest.fixture
def found():
    """The registry of a new graph, with a model that is being built."""
    with tf.Graph().as_default():
        found = registry.install_registry([""], rules.Adam(0.01))
        found.begin_build()
        yield found


_WRONG = {
    "name": (dict(name="a b"), "the name must consist of letters, digits and"),
    "dim": (dict(dim=0), "got dim=0; allowed: whole numbers above 0"),
    "dim of another type": (dict(dim=2.0), "got dim=2.0; allowed: whole numbers"),
    "num_rows": (dict(num_rows=-1), "got num_rows=-1; allowed: whole numbers above 0"),
    "num_hashes": (dict(num_rows=5, num_hashes=-1), "got num_hashes=-1; allowed: whole numbers from 0"),
    "min_count": (dict(min_count=0), "got min_count=0; allowed: whole numbers above 0"),
    "optimizer": (dict(optimizer="adamax"), "got optimizer='adamax'; allowed: sgd, .*adam, or a rule"),
    "learning_rate": (dict(learning_rate=0.0), "got learning_rate=0.0; allowed: numbers above 0"),
    "learning_rate of another type": (dict(learning_rate="fast"), "got learning_rate='fast'; allowed: numbers"),
    "initial_limit": (dict(initial_limit=-0.1), "got initial_limit=-0.1; allowed: numbers from 0"),
    "hashes of a dynamic table": (dict(num_hashes=2), "num_hashes is for tables with num_rows"),
    "eviction of a fixed table": (dict(num_rows=5, ttl_steps=3, max_rows=4),
                                  "only dynamic tables have ttl_steps, max_rows, and num_rows makes a fixed table"),
}


@pytest.mark.parametrize("arguments, message", _WRONG.values(), ids=_WRONG)
def test_a_wrong_argument_is_one_line(found, arguments, message):
    """It names the table, what was given, and what is allowed."""
    with pytest.raises(UserCodeError, match=f"^embedding_table '.*': {message}") as caught:
        ps_train.embedding_table(**{"name": "items", "dim": 2, **arguments})
    assert "\n" not in str(caught.value)
    assert found.specs == {}


def test_numpys_numbers_are_numbers(found):
    """A parameter that was computed may be one."""
    table = ps_train.embedding_table("items", np.int64(4), num_rows=np.int32(10), learning_rate=np.float32(0.5))
    assert table.lookup([1]).shape == [1, 4]
    assert found.specs["items"].rule == rules.Adam(0.5)


def test_a_name_is_used_once_in_a_model_and_again_in_its_next_build(found):
    """A second table of the name is refused; a second call of model_fn has to make it with the same arguments."""
    ps_train.embedding_table("items", 2)
    with pytest.raises(UserCodeError, match="the model has a table of this name; to share it, look both features up"):
        ps_train.embedding_table("items", 2)
    found.begin_build()
    ps_train.embedding_table("items", 2)
    found.begin_build()
    with pytest.raises(UserCodeError, match="model_fn has made it with other arguments before"):
        ps_train.embedding_table("items", 3)


def test_the_rule_comes_from_the_table_or_from_the_flags(found):
    """A table's rate goes with its own rule, or with that of the flags; a rule's other settings stay."""
    for name, options in {"none": {}, "name": {"optimizer": "sgd"}, "rate": {"learning_rate": 0.5},
                          "both": {"optimizer": "ftrl", "learning_rate": 0.5},
                          "rule": {"optimizer": rules.Ftrl(l1=0.1), "learning_rate": 0.5}}.items():
        ps_train.embedding_table(name, 2, **options)
    assert {name: spec.rule for name, spec in found.specs.items()} == {
        "none": rules.Adam(0.01), "name": rules.Sgd(0.01), "rate": rules.Adam(0.5), "both": rules.Ftrl(0.5),
        "rule": rules.Ftrl(0.5, l1=0.1)}


def test_the_names_of_other_frameworks_make_the_same_table(found):
    """get_embedding_variable, with 0 for what is not wanted."""
    ps_train.get_embedding_variable("items", 4, capacity=1000, filter_freq=3, steps_to_live=50, initial_limit=0.5)
    ps_train.get_embedding_variable("plain", embedding_dim=4, steps_to_live=0)
    assert found.specs["items"] == registry.TableSpec(
        "items", 4, rule=rules.Adam(0.01), min_count=3, ttl_steps=50, max_rows=1000, initial_limit=0.5)
    assert found.specs["plain"] == registry.TableSpec("plain", 4, rule=rules.Adam(0.01))


def test_ids_of_a_wrong_type_are_refused(found):
    """Floats always; strings where ids are row numbers; a combiner that there is not."""
    fixed, dynamic = ps_train.embedding_table("fixed", 2, num_rows=5), ps_train.embedding_table("dynamic", 2)
    with pytest.raises(UserCodeError, match="table dynamic: ages has float32; ids are integers or strings"):
        dynamic.lookup(tf.constant([1.0]), name="ages")
    with pytest.raises(UserCodeError, match="table fixed: words has strings, .*; give num_hashes=1, or leave"):
        fixed.lookup(tf.constant(["a"], name="words"))
    with pytest.raises(UserCodeError, match="table fixed: got the combiner 'max'; allowed: sum, mean, sqrtn"):
        fixed.lookup_sparse(tf.SparseTensor([[0, 0]], [1], [1, 1]), combiner="max")


def test_a_model_that_is_built_by_hand_gets_tables_of_one_process():
    """model_fn in a notebook, without ps_train around it."""
    with tf.Graph().as_default():
        assert ps_train.embedding_table("items", 2).lookup([[1, 2]]).shape == [1, 2, 2]
