"""Of `tf.contrib.seq2seq` in TensorFlow 1.1: DynamicAttentionWrapper, which is AttentionWrapper since 1.2.

Its state has only the cell's state and the attention, so scripts make the first one themselves:

    DynamicAttentionWrapperState(encoder_state, _zero_state_tensors(size, batch_size, tf.float32))
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.attention import AttentionWrapper, AttentionWrapperState


class DynamicAttentionWrapperState(collections.namedtuple(
        "DynamicAttentionWrapperState", ("cell_state", "attention"))):
    """The state of a DynamicAttentionWrapper."""

    def clone(self, **kwargs: Any) -> DynamicAttentionWrapperState:
        """Returns a copy with other values in some places."""
        return self._replace(**kwargs)


class DynamicAttentionWrapper(AttentionWrapper):
    """A cell that gets input and last attention, and whose output asks the memory for the next attention.

    Args:
      cell: an RNNCell.
      attention_mechanism: what it looks at.
      attention_size: of the attention, which a layer makes.
      cell_input_fn: (inputs, attention) -> input of the cell; by default, one behind the other.
      probability_fn: score -> alignments; by default, those of the mechanism.
      output_attention: whether the output is the attention, not the output of the cell.
      name: of the scope of its variables.
    """

    def __init__(self, cell: Any, attention_mechanism: Any, attention_size: int,
                 cell_input_fn: Callable | None = None, probability_fn: Callable | None = None,
                 output_attention: bool = True, name: str | None = None) -> None:
        super().__init__(cell, attention_mechanism, attention_size, cell_input_fn=cell_input_fn,
                         output_attention=output_attention, name=name or "dynamic_attention_wrapper")
        if probability_fn is not None:
            attention_mechanism.take_probability_fn(lambda score, state: probability_fn(score))

    @property
    def state_size(self) -> DynamicAttentionWrapperState:
        return DynamicAttentionWrapperState(self._cell.state_size, sum(self._layer_sizes))

    def zero_state(self, batch_size: Any, dtype: Any) -> DynamicAttentionWrapperState:
        """Returns the state before the first step."""
        return DynamicAttentionWrapperState(*super().zero_state(batch_size, dtype)[:2])

    def call(self, inputs: Any, state: DynamicAttentionWrapperState) -> tuple[Any, DynamicAttentionWrapperState]:
        """Returns the output and the next state."""
        first = self._mechanisms[0].initial_state(tf.shape(state.attention)[0], state.attention.dtype)
        output, state = super().call(inputs, AttentionWrapperState(*state, tf.constant(0), first, (), first))
        return output, DynamicAttentionWrapperState(state.cell_state, state.attention)
