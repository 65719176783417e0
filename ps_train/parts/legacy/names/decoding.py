"""Of `tf.contrib.seq2seq`: decoders step by step, and the helpers that give them their inputs.

    dynamic_decode   calls a Decoder until every sequence has finished, and stacks its outputs
    BasicDecoder     one step: the cell, then the helper's sample of its output and the next input
    *Helper          training: the next input is given; inference: it is the embedding of the sample

A batch is the first dimension, time the second, unless `time_major`.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import rnn

from ps_train.parts.legacy import unpacking

_Inputs = tuple[tf.Tensor, Any, Any]  # finished bool [batch], next inputs, next state


class Helper:
    """Samples, and makes the next inputs; the base of all helpers."""

    sample_ids_shape, sample_ids_dtype = tf.TensorShape([]), tf.int32

    @property
    def batch_size(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no batch_size")

    def initialize(self, name: str | None = None) -> tuple[tf.Tensor, Any]:
        """Returns which sequences have finished, and the first inputs."""
        raise NotImplementedError(f"{type(self).__name__} has no initialize()")

    def sample(self, time: tf.Tensor, outputs: Any, state: Any, name: str | None = None) -> tf.Tensor:
        """Returns the number of the likeliest class of each sequence: int32 [batch]."""
        del time, state, name
        return tf.argmax(outputs, -1, output_type=tf.int32)

    def next_inputs(self, time: tf.Tensor, outputs: Any, state: Any, sample_ids: Any,
                    name: str | None = None) -> _Inputs:
        """Returns what follows upon a sample."""
        raise NotImplementedError(f"{type(self).__name__} has no next_inputs(...)")


class TrainingHelper(Helper):
    """Gives the inputs [batch, time, ...], a tensor or a nest of them, whatever was sampled."""

    # The attributes with an underscore are TensorFlow 1's: subclasses in scripts read them.
    def __init__(self, inputs: Any, sequence_length: Any, time_major: bool = False, name: str | None = None) -> None:
        with tf.name_scope(name, "TrainingHelper", [inputs, sequence_length]):
            self._inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
            by_time = self._inputs if time_major else tf.nest.map_structure(_batch_and_time, self._inputs)
            self._input_tas = tf.nest.map_structure(_by_step, by_time)
            self._zero_inputs = tf.nest.map_structure(lambda part: tf.zeros_like(part[0]), by_time)
            self._sequence_length = tf.convert_to_tensor(sequence_length, name="sequence_length")
            if self._sequence_length.shape.ndims != 1:
                raise ValueError("TrainingHelper: sequence_length must be a vector [batch], got the shape "
                                 f"{self._sequence_length.shape}")
            self._batch_size = tf.size(self._sequence_length)

    @property
    def inputs(self) -> Any:
        return self._inputs

    @property
    def sequence_length(self) -> tf.Tensor:
        return self._sequence_length

    @property
    def batch_size(self) -> Any:
        return self._batch_size

    def initialize(self, name: str | None = None) -> tuple[tf.Tensor, Any]:
        with tf.name_scope(name, "TrainingHelperInitialize"):
            finished = tf.equal(self._sequence_length, 0)
            return finished, self._read(tf.constant(0), finished)

    def next_inputs(self, time: tf.Tensor, outputs: Any, state: Any, sample_ids: Any = None,
                    name: str | None = None, **unused_kwargs: Any) -> _Inputs:
        with tf.name_scope(name, "TrainingHelperNextInputs"):
            finished = tf.cast(time, self._sequence_length.dtype) + 1 >= self._sequence_length
            return finished, self._read(time + 1, finished), state

    def _read(self, time: tf.Tensor, finished: tf.Tensor) -> Any:
        # Not beyond the last step: the inputs are as long as the longest sequence.
        return tf.cond(tf.reduce_all(finished), lambda: self._zero_inputs,
                       lambda: tf.nest.map_structure(lambda array: array.read(time), self._input_tas))


class ScheduledEmbeddingTrainingHelper(TrainingHelper):
    """With some probability, the next input is the embedding of a sample: https://arxiv.org/abs/1506.03099."""

    def __init__(self, inputs: tf.Tensor, sequence_length: Any, embedding: Any, sampling_probability: Any,
                 time_major: bool = False, seed: int | None = None, scheduling_seed: int | None = None,
                 name: str | None = None) -> None:
        super().__init__(inputs, sequence_length, time_major, name)
        self._embedding_fn, self._probability = lookup_function(embedding), sampling_probability
        self._seed, self._scheduling_seed = seed, scheduling_seed

    def sample(self, time: tf.Tensor, outputs: Any, state: Any, name: str | None = None) -> tf.Tensor:
        """Returns the samples: int32 [batch], -1 where the given input follows."""
        with tf.name_scope(name, "ScheduledEmbeddingTrainingHelperSample"):
            is_sampled = tf.random_uniform([self.batch_size], seed=self._scheduling_seed) < self._probability
            return tf.where(is_sampled, _draw(outputs, self._seed), tf.fill([self.batch_size], -1))

    def next_inputs(self, time: tf.Tensor, outputs: Any, state: Any, sample_ids: Any,
                    name: str | None = None) -> _Inputs:
        with tf.name_scope(name, "ScheduledEmbeddingTrainingHelperNextInputs"):
            finished, given, state = super().next_inputs(time, outputs, state, sample_ids)
            sampled = tf.cast(self._embedding_fn(tf.maximum(sample_ids, 0)), given.dtype)
            return finished, tf.where(sample_ids >= 0, sampled, given), state


class ScheduledOutputTrainingHelper(TrainingHelper):
    """With some probability, the next input is the output, or what a function makes of it."""

    def __init__(self, inputs: tf.Tensor, sequence_length: Any, sampling_probability: Any, time_major: bool = False,
                 seed: int | None = None, next_inputs_fn: Callable | None = None, auxiliary_inputs: Any = None,
                 name: str | None = None) -> None:
        """Takes `auxiliary_inputs` like the inputs, of which each step is put behind its input, given or sampled."""
        self._probability, self._seed, self._next_inputs_fn = sampling_probability, seed, next_inputs_fn
        self._auxiliary: Any = None
        if auxiliary_inputs is not None:
            auxiliary = tf.convert_to_tensor(auxiliary_inputs)
            self._auxiliary = _by_step(auxiliary if time_major else _batch_and_time(auxiliary))
            inputs = tf.concat([inputs, auxiliary], -1)
        super().__init__(inputs, sequence_length, time_major, name)

    def sample(self, time: tf.Tensor, outputs: Any, state: Any, name: str | None = None) -> tf.Tensor:
        """Returns 1 where the output follows, 0 where the given input does: int32 [batch]."""
        with tf.name_scope(name, "ScheduledOutputTrainingHelperSample"):
            return tf.cast(tf.random_uniform([self.batch_size], seed=self._seed) < self._probability, tf.int32)

    def next_inputs(self, time: tf.Tensor, outputs: Any, state: Any, sample_ids: Any = None,
                    name: str | None = None, **unused_kwargs: Any) -> _Inputs:
        with tf.name_scope(name, "ScheduledOutputTrainingHelperNextInputs"):
            finished, given, state = super().next_inputs(time, outputs, state)
            return finished, tf.cond(
                tf.reduce_all(finished), lambda: given,
                lambda: tf.where(sample_ids > 0, self._of_outputs(time, outputs), given)), state

    def _of_outputs(self, time: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        sampled = outputs if self._next_inputs_fn is None else self._next_inputs_fn(outputs)
        return sampled if self._auxiliary is None else tf.concat([sampled, self._auxiliary.read(time + 1)], -1)


class GreedyEmbeddingHelper(Helper):
    """Begins with `start_tokens`, int [batch], goes on with the likeliest class, and ends a sequence at `end_token`."""

    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any) -> None:
        self._embedding_fn = lookup_function(embedding)
        self._start_tokens = tf.cast(tf.convert_to_tensor(start_tokens), tf.int32)
        self._end_token = tf.cast(tf.convert_to_tensor(end_token), tf.int32)
        self._batch_size = tf.size(self._start_tokens)
        # Here, not in the decoder's scope: it may be a function that makes variables.
        self._start_inputs = self._embedding_fn(self._start_tokens)

    @property
    def batch_size(self) -> Any:
        return self._batch_size

    def initialize(self, name: str | None = None) -> tuple[tf.Tensor, Any]:
        return tf.fill([self.batch_size], False), self._start_inputs

    def next_inputs(self, time: tf.Tensor, outputs: Any, state: Any, sample_ids: Any,
                    name: str | None = None) -> _Inputs:
        return tf.equal(sample_ids, self._end_token), self._embedding_fn(sample_ids), state


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Goes on with a class that is drawn by the softmax of the outputs, divided by a temperature."""

    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any, softmax_temperature: Any = None,
                 seed: int | None = None) -> None:
        super().__init__(embedding, start_tokens, end_token)
        self._temperature, self._seed = softmax_temperature, seed

    def sample(self, time: tf.Tensor, outputs: Any, state: Any, name: str | None = None) -> tf.Tensor:
        return _draw(outputs if self._temperature is None else outputs / self._temperature, self._seed)


class InferenceHelper(Helper):
    """Begins with `start_inputs` [batch, ...], and goes on with what functions of the outputs and the samples return.

    Args:
      sample_fn: outputs -> samples.
      sample_shape: of a sample, without the batch.
      sample_dtype: of the samples.
      start_inputs: the first inputs.
      end_fn: samples -> whether each ends its sequence, bool [batch].
      next_inputs_fn: samples -> the next inputs; by default the samples.
    """

    def __init__(self, sample_fn: Callable, sample_shape: Any, sample_dtype: Any, start_inputs: Any, end_fn: Callable,
                 next_inputs_fn: Callable | None = None) -> None:
        self._sample_fn, self._end_fn, self._next_inputs_fn = sample_fn, end_fn, next_inputs_fn
        self.sample_ids_shape, self.sample_ids_dtype = tf.TensorShape(sample_shape), sample_dtype
        self._start_inputs = tf.convert_to_tensor(start_inputs, name="start_inputs")
        self._batch_size = tf.shape(self._start_inputs)[0]

    @property
    def batch_size(self) -> Any:
        return self._batch_size

    def initialize(self, name: str | None = None) -> tuple[tf.Tensor, Any]:
        return tf.fill([self.batch_size], False), self._start_inputs

    def sample(self, time: tf.Tensor, outputs: Any, state: Any, name: str | None = None) -> tf.Tensor:
        return self._sample_fn(outputs)

    def next_inputs(self, time: tf.Tensor, outputs: Any, state: Any, sample_ids: Any,
                    name: str | None = None) -> _Inputs:
        following = sample_ids if self._next_inputs_fn is None else self._next_inputs_fn(sample_ids)
        return self._end_fn(sample_ids), following, state


class CustomHelper(Helper):
    """Three functions of the script: (), (time, outputs, state) and (time, outputs, state, sample_ids)."""

    def __init__(self, initialize_fn: Callable, sample_fn: Callable, next_inputs_fn: Callable,
                 sample_ids_shape: Any = None, sample_ids_dtype: Any = None) -> None:
        self._initialize, self._sample, self._next_inputs = initialize_fn, sample_fn, next_inputs_fn
        self.sample_ids_shape = tf.TensorShape(sample_ids_shape or [])
        self.sample_ids_dtype = sample_ids_dtype or tf.int32
        self._batch_size: Any = None

    @property
    def batch_size(self) -> Any:
        """Known once `initialize` was called."""
        return self._batch_size

    def initialize(self, name: str | None = None) -> tuple[tf.Tensor, Any]:
        finished, inputs = self._initialize()
        self._batch_size = tf.size(finished)
        return finished, inputs

    def sample(self, time: tf.Tensor, outputs: Any, state: Any, name: str | None = None) -> tf.Tensor:
        return self._sample(time=time, outputs=outputs, state=state)

    def next_inputs(self, time: tf.Tensor, outputs: Any, state: Any, sample_ids: Any,
                    name: str | None = None) -> _Inputs:
        return self._next_inputs(time=time, outputs=outputs, state=state, sample_ids=sample_ids)


BasicDecoderOutput = collections.namedtuple("BasicDecoderOutput", ("rnn_output", "sample_id"))


class Decoder:
    """What `dynamic_decode` calls; the base of all decoders, those of a script too."""

    tracks_own_finished = False  # whether a sequence that has finished may go on

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: tf.Tensor) -> tuple[Any, Any]:
        """Returns outputs and state as `dynamic_decode` returns them; outputs [time, batch, ...]."""
        del sequence_lengths
        return outputs, final_state


class BasicDecoder(Decoder):
    """A cell, a helper, and perhaps a layer between them, such as the one that makes logits of the cell's outputs."""

    def __init__(self, cell: Any, helper: Helper, initial_state: Any, output_layer: Any = None) -> None:
        self._cell, self._helper, self._initial_state, self._output_layer = cell, helper, initial_state, output_layer

    @property
    def batch_size(self) -> Any:
        return self._helper.batch_size

    @property
    def output_size(self) -> BasicDecoderOutput:
        size = self._cell.output_size
        if self._output_layer is not None:
            size = tf.nest.map_structure(
                lambda one: self._output_layer.compute_output_shape(tf.TensorShape([None]).concatenate(one))[1:], size)
        return BasicDecoderOutput(size, self._helper.sample_ids_shape)

    @property
    def output_dtype(self) -> BasicDecoderOutput:
        dtype = tf.nest.flatten(self._initial_state)[0].dtype
        return BasicDecoderOutput(tf.nest.map_structure(lambda _: dtype, self.output_size.rnn_output),
                                  self._helper.sample_ids_dtype)

    def initialize(self, name: str | None = None) -> _Inputs:
        """Returns which sequences have finished, the first inputs, and the initial state."""
        return (*self._helper.initialize(), self._initial_state)

    def step(self, time: tf.Tensor, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        """Returns outputs, next state, next inputs, and which sequences have finished."""
        with tf.name_scope(name, "BasicDecoderStep"):
            outputs, state = self._cell(inputs, state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            sample_ids = self._helper.sample(time=time, outputs=outputs, state=state)
            finished, inputs, state = self._helper.next_inputs(
                time=time, outputs=outputs, state=state, sample_ids=sample_ids)
        return BasicDecoderOutput(outputs, sample_ids), state, inputs, finished


def dynamic_decode(decoder: Any, output_time_major: bool = False, impute_finished: bool = False,
                   maximum_iterations: Any = None, parallel_iterations: int = 32, swap_memory: bool = False,
                   scope: Any = None) -> tuple[Any, ...]:
    """Returns the outputs of all steps, the last state, and the lengths int32 [batch] of the sequences.

    A statement that takes apart two values gets them without the lengths, as until 1.1.

    Args:
      decoder: with `initialize`, `step`, `batch_size`, `output_size` and `output_dtype`.
      output_time_major: whether the outputs are [time, batch, ...], not [batch, time, ...].
      impute_finished: whether a sequence that has finished has outputs of 0 from then on, and keeps its state.
      maximum_iterations: number of steps after which every sequence has finished.
      parallel_iterations, swap_memory: as of tf.while_loop.
      scope: of the variables.
    """
    with tf.variable_scope(scope, "decoder") as variables:
        if variables.caching_device is None and rnn._should_cache():  # noqa: SLF001 (as dynamic_rnn does)
            # A variable is read once, before the loop, and not from its ps in each step.
            variables.set_caching_device(lambda op: op.device)
        finished, inputs, state = decoder.initialize()
        if maximum_iterations is not None:
            finished = tf.logical_or(finished, tf.less_equal(maximum_iterations, 0))
        arrays = tf.nest.map_structure(
            lambda size, dtype: tf.TensorArray(dtype, 0, dynamic_size=True,
                                               element_shape=tf.TensorShape([None]).concatenate(size)),
            decoder.output_size, decoder.output_dtype)
        _, arrays, state, _, _, lengths = tf.while_loop(
            lambda time, arrays, state, inputs, finished, lengths: tf.logical_not(tf.reduce_all(finished)),
            _step_of(decoder, impute_finished, maximum_iterations),
            (tf.constant(0), arrays, state, inputs, finished, tf.zeros_like(finished, tf.int32)),
            parallel_iterations=parallel_iterations, swap_memory=swap_memory)
        outputs, state = decoder.finalize(tf.nest.map_structure(lambda array: array.stack(), arrays), state, lengths)
    outputs = outputs if output_time_major else tf.nest.map_structure(_batch_and_time, outputs)
    return unpacking.as_before((outputs, state, lengths), 2)


def _step_of(decoder: Any, impute_finished: bool, maximum_iterations: Any) -> Callable:
    """Returns the body of the loop: time, arrays of outputs, state, inputs, finished and lengths -> the next ones."""
    zeros = tf.nest.map_structure(
        lambda size, dtype: tf.zeros([decoder.batch_size, *tf.TensorShape(size).as_list()], dtype),
        decoder.output_size, decoder.output_dtype)

    def step(time, arrays, state, inputs, finished, lengths):
        outputs, next_state, inputs, ends = decoder.step(time, inputs, state)
        if not getattr(decoder, "tracks_own_finished", False):
            ends = tf.logical_or(ends, finished)
        if maximum_iterations is not None:
            ends = tf.logical_or(ends, time + 1 >= maximum_iterations)
        lengths = tf.where(finished, lengths, tf.fill(tf.shape(lengths), time + 1))
        if impute_finished:
            outputs = tf.nest.map_structure(lambda out, zero: tf.where(finished, zero, out), outputs, zeros)
            next_state = tf.nest.map_structure(lambda new, old: _kept(finished, new, old), next_state, state)
        arrays = tf.nest.map_structure(lambda array, out: array.write(time, out), arrays, outputs)
        return time + 1, arrays, next_state, inputs, ends, lengths

    return step


def _kept(finished: tf.Tensor, new: Any, old: Any) -> Any:
    """Returns the old state where a sequence has finished; numbers and TensorArrays go on."""
    if isinstance(new, tf.TensorArray) or new.shape.ndims == 0:
        return new
    kept = tf.where(finished, old, new)
    kept.set_shape(old.shape)
    return kept


def _batch_and_time(value: tf.Tensor) -> tf.Tensor:
    """Returns a tensor with its first two dimensions exchanged."""
    return tf.transpose(value, [1, 0, *range(2, value.shape.ndims)])


def _by_step(value: tf.Tensor) -> tf.TensorArray:
    """Returns the steps of a tensor [time, batch, ...]."""
    return tf.TensorArray(value.dtype, tf.shape(value)[0], element_shape=value.shape[1:]).unstack(value)


def lookup_function(embedding: Any) -> Callable:
    """Returns the function that makes inputs of symbols: the embedding itself, or a lookup in a variable."""
    return embedding if callable(embedding) else lambda ids: tf.nn.embedding_lookup(embedding, ids)


def _draw(logits: tf.Tensor, seed: int | None) -> tf.Tensor:
    """Returns classes that are drawn by the softmax of the logits: int32 [batch]."""
    return tf.squeeze(tf.random.categorical(logits, 1, dtype=tf.int32, seed=seed), 1)
