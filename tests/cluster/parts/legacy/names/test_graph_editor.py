"""tf.contrib.graph_editor: walks, views, changed inputs and copies, on small graphs whose values numpy knows."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ps_train.parts.legacy.names import graph_editor as views
from ps_train.parts.legacy.names import graph_editor_copies as copies
from ps_train.parts.legacy.names import graph_editor_selection as selection
from tests.tensorflow_mode import tf


@pytest.fixture(autouse=True)
def graph():
    """A default graph for this test only."""
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def small(graph):
    """Returns name -> operation of product = sum * s/neg(sum), sum = a + b, s/exp(a); `late` waits for s/neg."""
    a, b = tf.constant(2.0, name="a"), tf.constant(3.0, name="b")
    total = tf.add(a, b, name="sum")
    with tf.name_scope("s"):
        negative = tf.negative(total, name="neg")
        tf.exp(a, name="exp")
    tf.multiply(total, negative, name="product")
    with tf.control_dependencies([negative]):
        tf.constant(1.0, name="late")
    return {op.name: op for op in graph.get_operations()}


def run(tensors, feed=None):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(tensors, feed)


def names(items):
    return [item.name for item in items]


@pytest.mark.parametrize(("seed", "options", "expected"), [
    ("product", {}, {"product", "sum", "s/neg", "a", "b"}),
    ("product", {"inclusive": False}, {"sum", "s/neg", "a", "b"}),
    ("product", {"stop_at": "sum:0"}, {"product", "s/neg"}),
    ("product", {"within": ["product", "sum", "b"]}, {"product", "sum", "b"}),
    ("a", {"within": ["b"]}, set()),
    ("product", {"within": []}, set()),
    ("product", {"within_ops_fn": lambda op: op.type != "Const"}, {"product", "sum", "s/neg"}),
    ("late", {}, {"late"}),
    ("late", {"control_inputs": True}, {"late", "s/neg", "sum", "a", "b"}),
])
def test_a_walk_backward(small, graph, seed, options, expected):
    """Each operation once; it ends where it is told to."""
    found = selection.get_backward_walk_ops(small[seed], **arguments(small, graph, options))
    assert set(names(found)) == expected and len(found) == len(expected)


@pytest.mark.parametrize(("seed", "options", "expected"), [
    ("b", {}, {"b", "sum", "s/neg", "product"}),
    ("a", {"inclusive": False}, {"sum", "s/neg", "product", "s/exp"}),
    ("a", {"stop_at": "sum:0"}, {"a", "sum", "s/exp"}),
    ("a", {"within": ["a", "s/exp", "product"]}, {"a", "s/exp"}),
    ("b", {"is_control": True}, {"b", "sum", "s/neg", "product", "late"}),
])
def test_a_walk_forward(small, graph, seed, options, expected):
    """Along tensors, and along control inputs if it is asked to."""
    given = arguments(small, graph, options)
    if given.pop("is_control", False):
        given["control_outputs"] = selection.ControlOutputs(graph)
    found = selection.get_forward_walk_ops([small[seed]], **given)
    assert set(names(found)) == expected and len(found) == len(expected)


def arguments(small, graph, options):
    """Returns options with operations and tensors in place of names."""
    given = dict(options)
    if "stop_at" in given:
        given["stop_at_ts"] = [graph.get_tensor_by_name(given.pop("stop_at"))]
    if "within" in given:
        given["within_ops"] = [small[name] for name in given.pop("within")]
    return given


def test_walks_begin_at_tensors_and_meet(small):
    """A tensor stands for who makes it, or for who reads it; both walks have what lies between."""
    total, negative = small["sum"].outputs[0], small["s/neg"].outputs[0]
    assert set(names(selection.get_backward_walk_ops([total, small["s/exp"]]))) == {"sum", "a", "b", "s/exp"}
    assert set(names(selection.get_forward_walk_ops(total))) == {"s/neg", "product"}
    assert names(selection.get_walks_intersection_ops(small["b"], negative)) == ["b", "sum", "s/neg"]
    assert set(names(selection.get_walks_union_ops(small["s/exp"], negative))) == {"s/exp", "s/neg", "sum", "a", "b"}


def test_operations_and_tensors_are_selected(small, graph):
    """By expressions, by filters and from lists; expressions for one kind have a mark."""
    assert names(selection.select_ops("^s/", graph=graph)) == ["s/neg", "s/exp"]
    assert names(selection.select_ops(re.compile("u"), small["a"], graph=graph)) == ["sum", "product", "a"]
    assert selection.select_ops("(?#ts)a", graph=graph) == []
    assert names(selection.select_ts("^s/neg:0$", small["a"].outputs[0], graph=graph)) == ["s/neg:0", "a:0"]
    ops, ts = selection.select_ops_and_ts(small["a"], "exp", "(?#ts)^b:", graph=graph)
    assert (names(ops), names(ts)) == (["a", "s/exp"], ["b:0"])
    assert names(selection.get_name_scope_ops(graph, "s/")) == ["s/neg", "s/exp"]
    assert names(selection.filter_ops(graph, lambda op: op.type == "Const")) == ["a", "b", "late"]
    assert names(selection.filter_ts([small["s/neg"], small["product"]], True)) == ["sum:0", "s/neg:0", "product:0"]
    assert names(selection.filter_ts_from_regex(small.values(), "^(a|b):0$")) == ["a:0", "b:0"]
    assert names(selection.make_list_of_t(graph)) == [f"{name}:0" for name in small]
    with pytest.raises(ValueError, match="needs a graph"):
        selection.select_ops("^s/")
    with pytest.raises(TypeError, match="give a Operation"):
        selection.make_list_of_op(["a"])


def test_a_filter_finds_no_handles():
    """A handle of a variable is no value that a script could keep."""
    value = tf.raw_ops.ReadVariableOp(resource=tf.get_variable("conv2d", initializer=1.0).handle, dtype=tf.float32)
    assert selection.filter_ts_from_regex(value.op, "conv2d") == [] and selection.filter_ts(value.op, True) == [value]


def test_a_view_has_the_tensors_of_its_border(small):
    """What it reads from others, and what others read, or nobody; a tensor beside it passes through."""
    view = views.sgv([small["sum"], small["s/neg"]], small["s/exp"].outputs[0])
    assert names(view.inputs) == ["a:0", "b:0", "s/exp:0"] and names(view.outputs) == ["sum:0", "s/neg:0", "s/exp:0"]
    assert names(view.passthroughs) == ["s/exp:0"] and names(view.connected_inputs) == ["a:0", "b:0"]
    assert names(view.remap_inputs([1, 0]).inputs) == ["b:0", "a:0"] and names(view.consumers()) == ["product"]
    assert names(views.sgv_scope("s", small["a"].graph).outputs) == ["s/neg:0", "s/exp:0"]
    assert views.sgv(view) is view


def test_rerouted_readers_read_another_tensor(small):
    """All of them, or some; the number of changed inputs is returned."""
    a, total, product = small["a"].outputs[0], small["sum"].outputs[0], small["product"].outputs[0]
    assert views.reroute_ts([a], [total], cannot_modify=small["product"]) == 1
    assert run(product) == 5.0 * -2.0
    assert views.reroute_ts(a, total, can_modify=[small["s/exp"]]) == 0
    assert views.reroute_ts(a, total, can_modify=[small["product"]]) == 1
    assert run(product) == 2.0 * -2.0
    with pytest.raises(ValueError, match="got 1 tensors to read in place of 2"):
        views.reroute_ts([a], [total, product])


def test_swapped_readers_read_each_others_tensor(small):
    """Both ways."""
    a, b = small["a"].outputs[0], small["b"].outputs[0]
    difference, exponent = tf.subtract(b, 1.0), small["s/exp"].outputs[0]
    assert views.swap_ts(a, b) == 4  # `sum` reads both
    np.testing.assert_allclose(run([difference, exponent]), [1.0, np.exp(3.0)], rtol=1e-6)


def test_views_exchange_inputs_and_outputs(small):
    """The readers inside change for inputs, those outside for outputs."""
    x = tf.constant(10.0)
    scaled, shifted = tf.multiply(x, 2.0), tf.add(small["a"].outputs[0], 1.0)
    results = [tf.identity(scaled), tf.identity(shifted)]
    first, second = views.reroute_inputs(scaled.op, shifted.op)  # shifted = x + 2
    assert run(results) == [20.0, 12.0] and names(second.inputs) == names(first.inputs)
    views.swap_outputs(scaled, shifted)
    assert run(results) == [12.0, 20.0] and run([scaled, shifted]) == [20.0, 12.0]
    views.reroute_outputs(scaled.op, shifted.op)
    assert run(results) == [20.0, 20.0]
    doubled = tf.multiply(scaled, 2.0)
    views.reroute_outputs(doubled.op, scaled.op)  # it goes on to read `scaled` itself
    assert run([*results, doubled]) == [40.0, 40.0, 40.0]
    views.swap_inputs(x, small["a"].outputs[0])
    assert run([scaled, small["sum"].outputs[0]]) == [4.0, 13.0]


def test_views_are_connected_and_detached(small):
    """A connected one reads the other's outputs; a detached one placeholders; one that is bypassed is left out."""
    product, total = small["product"].outputs[0], small["sum"].outputs[0]
    views.connect_views(tf.constant(7.0), total)
    assert run(product) == 7.0 * -7.0
    view, (fed,) = views.detach_inputs(small["s/neg"])
    assert fed.name == "geph__Const_0:0" and view.inputs == [fed]
    assert run(product, {fed: 2.0}) == 7.0 * -2.0
    views.bypass(small["s/neg"])
    assert run(product, {fed: 2.0}) == 7.0 * 2.0
    _, (out,) = views.detach_outputs(small["a"])
    assert run(small["s/exp"].outputs[0], {out: 0.0}) == 1.0
    views.detach_inputs(small["late"])
    assert names(small["late"].control_inputs) == ["s/neg"]
    views.detach(small["late"], control_inputs=True)
    assert not small["late"].control_inputs


def test_an_operation_waits_for_its_control_inputs():
    """A read sees what is assigned before it, and no longer when it does not wait."""
    variable = tf.get_variable("v", initializer=1.0)
    assign = variable.assign(5.0, read_value=False)
    read = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tf.float32)
    views.add_control_inputs(read.op, assign)
    assert run(read) == 5.0
    with pytest.raises(ValueError, match="has the control inputs"):
        views.add_control_inputs(read.op, [assign])
    views.add_control_inputs(read.op, tf.no_op("other"))
    views.remove_control_inputs(read.op, [assign])
    assert run(read) == 1.0 and names(read.op.control_inputs) == ["other"]
    with pytest.raises(ValueError, match="has no control inputs"):
        views.remove_control_inputs(read.op, assign)


def test_a_copy_computes_with_other_inputs():
    """What is not replaced is read as before: a copied read reads the same variable."""
    x, other = tf.placeholder(tf.float32, [2, 3], name="x"), tf.constant(np.full((2, 3), 2.0, np.float32))
    weights = tf.get_variable("w", initializer=np.arange(12, dtype=np.float32).reshape(3, 4))
    y = tf.tanh(tf.matmul(x, weights) / 10.0)
    ops = [op for op in selection.get_backward_walk_ops(y) if op.inputs]
    copy, info = copies.copy_with_input_replacements(ops, {x: other}, dst_scope="again")
    assert len(info._transformed_ops) == len(ops) and info.transformed(x) is other
    assert copy.outputs == [info.transformed(y)] and info.original(copy.outputs[0]) is y
    assert copy.outputs[0].name == f"again/{y.name}" and info.transformed(tf.constant(0.0)) is None
    w = np.arange(12).reshape(3, 4)
    np.testing.assert_allclose(run(copy.outputs[0]), np.tanh(np.full((2, 3), 2.0) @ w / 10), rtol=1e-5)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(weights.assign(tf.zeros_like(weights)))
        assert not session.run(copy.outputs[0]).any()


def test_a_copy_keeps_what_operations_have(graph):
    """Attributes, devices, control inputs, and colocation, within the copy if the other is in it."""
    x = tf.constant([[1.0, 2.0]])
    before = tf.constant(0.0, name="before")
    with tf.device("/job:ps/task:1"), tf.control_dependencies([before]):
        first = tf.matmul(x, x, transpose_b=True, name="first")
    with graph.colocate_with(first.op), tf.control_dependencies([first]):
        second = tf.identity(x, name="second")
    with graph.colocate_with(before.op):
        third = tf.identity(second, name="third")
    with tf.device("/cpu:0"), tf.name_scope("elsewhere"), tf.control_dependencies([tf.no_op("not_this")]):
        _, info = copies.copy_with_input_replacements([first.op, second.op, third.op], {})
    new = [info.transformed(tensor).op for tensor in (first, second, third)]
    assert names(new) == ["first_1", "second_1", "third_1"] and new[0].get_attr("transpose_b")
    assert [op.device for op in new] == ["/job:ps/task:1", "/job:ps/task:1", ""]
    assert [op.colocation_groups() for op in new[1:]] == [[b"loc:@first_1"], [b"loc:@before"]]
    assert [names(op.control_inputs) for op in new] == [["before"], ["first_1"], []]
    assert names(second.op.control_inputs) == ["first"]


def test_a_copy_in_another_graph_reads_placeholders():
    """As do all copies by `copy`; the names can lose a scope and gain one."""
    x = tf.constant(3.0, name="x")
    with tf.name_scope("from"):
        y = tf.square(x, name="y")
    other = tf.Graph()
    view, _ = copies.copy_with_input_replacements(y.op, {}, other, dst_scope="to", src_scope="from")
    assert view.outputs[0].graph is other and view.outputs[0].name == "to/y:0"
    with tf.Session(graph=other) as session:
        assert session.run(view.outputs[0], {view.inputs[0]: 5.0}) == 25.0
    same, _ = copies.copy(y.op)
    assert run(same.outputs[0], {same.inputs[0]: 4.0}) == 16.0 and same.inputs[0].name == "geph__x_0:0"
    with pytest.raises(ValueError, match="src_scope: from/y is not in elsewhere"):
        copies.copy(y.op, src_scope="elsewhere")
    with pytest.raises(TypeError, match="dst_graph"):
        copies.copy(y.op, dst_graph="graph")


def test_targets_are_computed_from_replaced_tensors():
    """In the structure that was given; a target that does not depend on them stays."""
    x, z = tf.constant(2.0), tf.constant(1.0)
    y = tf.square(x)
    found = copies.graph_replace({"y": y, "all": [y + z, z]}, {x: tf.constant(5.0)})
    assert run(found) == {"y": 25.0, "all": [26.0, 1.0]} and run(y) == 4.0
    with pytest.raises(ValueError, match="do not depend"):
        copies.graph_replace(z, {x: y})


def _looped(x, weight):
    return tf.while_loop(lambda step, _: step < 3, lambda step, value: (step + 1, tf.sin(value) * weight), (0, x))[1]


def _chosen(x, weight):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: x * weight, lambda: tf.exp(weight) * tf.constant([7.0, 8.0]))


@pytest.mark.parametrize("build", [_looped, _chosen])
def test_a_copied_loop_or_conditional_is_one_of_its_own(build):
    """Values and gradients are those of the original for the other input, also after gradients of the original."""
    x, other = (tf.placeholder(tf.float32, [2]) for _ in range(2))
    weight = tf.get_variable("w", initializer=2.0)
    y = build(x, weight)
    before = tf.gradients(y, weight)
    copied = copies.graph_replace(y, {x: other})
    ours, theirs = [copied, *tf.gradients(copied, weight)], [y, *before]
    values = {x: [0.5, 0.25], other: [-0.5, -2.0]}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        both = session.run([ours, theirs], values)
        expected = [session.run(theirs, {x: values[placeholder]}) for placeholder in (other, x)]
    for found, value in zip([*both[0], *both[1]], [*expected[0], *expected[1]]):
        np.testing.assert_allclose(found, value, rtol=1e-6)


def test_gradients_of_a_recomputed_segment_are_those_of_the_graph():
    """As gradient checkpointing does: the layers behind a kept tensor are computed again from it."""
    x = tf.constant(np.random.default_rng(0).normal(size=(8, 6)), tf.float32)
    weights = [tf.get_variable(f"w{layer}", [6, 6]) for layer in range(4)]
    layers = [x]
    for weight in weights:
        layers.append(tf.tanh(tf.matmul(layers[-1], weight)))
    loss = tf.reduce_mean(tf.square(layers[-1]))
    plain = tf.gradients(loss, weights)
    kept = layers[2]
    stopped = tf.stop_gradient(kept)
    forward = selection.get_forward_walk_ops([weight.handle.op for weight in weights], inclusive=False,
                                             within_ops=selection.get_backward_walk_ops(loss))

    def recomputed(target, stop_at=()):
        ops = selection.get_backward_walk_ops(target, stop_at_ts=stop_at, within_ops=forward)
        _, info = copies.copy_with_input_replacements(views.sgv(ops), {})
        views.reroute_ts([stopped], [kept], can_modify=info._transformed_ops.values())
        for op in info._transformed_ops.values():
            views.add_control_inputs(op, [loss.op])
        return info.transformed(target), info

    copied_loss, info = recomputed(loss, [kept])
    assert layers[3] in info._transformed_ts and layers[1] not in info._transformed_ts
    *late, by_kept = tf.gradients(copied_loss, [*weights[2:], stopped])
    early = tf.gradients(recomputed(kept)[0], weights[:2], grad_ys=by_kept)
    for found, expected in zip(*run([[*early, *late], plain])):
        assert np.abs(expected).max() > 1e-5
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)
