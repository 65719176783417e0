"""Functions of TensorFlow whose arguments changed, random numbers with a seed, and smaller parts of tf.contrib."""

from __future__ import annotations

import tensorflow as tf
from shared import floats, ids, shares

C, F, K, NN = tf.contrib, tf.contrib.framework, tf.contrib.lookup, tf.nn


def letters():
    return tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [0, 1, 2], [2, 2])


def found_variables():
    for name in ("a/w", "b/w"):
        F.model_variable(name, [2], regularizer=C.layers.l2_regularizer(0.1))
    return [len(F.get_variables("a")), len(F.get_model_variables()), len(F.get_variables_by_suffix("w")),
            len(F.filter_variables(tf.global_variables(), include_patterns=["a"])),
            len(F.get_variables_to_restore(exclude=["a"])), F.local_variable(3.0, name="l")]


def hyperparameters():
    parameters = C.training.HParams(a=1, b=[3, 4], c="y", d=True, e=2.5)
    before = parameters.to_json()
    parameters.parse("a=3,b=[1,2],c=x")
    return [tf.constant(before), tf.constant(parameters.to_json()), parameters.parse_json('{"a": 7}').a]


def datasets():
    counted = tf.data.Dataset.range(10)
    return [dataset.make_one_shot_iterator().get_next() for dataset in (
        counted.apply(C.data.map_and_batch(lambda x: x * 2, 3)), counted.shuffle(10, seed=3),
        tf.data.Dataset.from_tensor_slices(floats(9, 2)).apply(C.data.batch_and_drop_remainder(4)),
        counted.apply(C.data.enumerate_dataset()),
        counted.apply(C.data.scan(tf.constant(0, tf.int64), lambda total, x: (total + x, total + x))),
        C.data.sample_from_datasets([counted, tf.data.Dataset.range(50, 60)], [0.5, 0.5], seed=3),
        counted.apply(C.data.bucket_by_sequence_length(lambda x: tf.cast(x, tf.int32), [3, 5], [2, 2, 2])),
        counted.apply(C.data.parallel_interleave(lambda x: tf.data.Dataset.from_tensors(x).repeat(2), 2)),
        C.data.Counter(2, 3), tf.data.Dataset.from_tensors([1, 2]).apply(C.data.unbatch()))], 2


def queues():
    return [tf.train.slice_input_producer([tf.range(6), floats(6)], shuffle=False),
            tf.train.string_input_producer(["a", "b", "c"], shuffle=False).dequeue(),
            tf.train.range_input_producer(4, shuffle=True, seed=3).dequeue(),
            C.training.bucket_by_sequence_length(tf.constant(3), [floats(4)], 2, [2, 5])], 4


CASES = {
    "image": lambda: [
        C.image.rotate(floats(1, 6, 6, 2), 0.5, interpolation="BILINEAR"),
        C.image.translate(floats(1, 6, 6, 2), [1.0, 2.0]),
        C.image.transform(floats(1, 6, 6, 2), [1.0, 0.1, 0.0, 0.0, 1.2, 0.0, 0.0, 0.0]),
        C.image.compose_transforms([1.0, 0.1, 0, 0, 1.2, 0, 0, 0], [1.0, 0.1, 1, 0, 1.2, 0, 0, 0]),
        C.image.dense_image_warp(floats(1, 6, 6, 2), floats(1, 6, 6, 2)),
        C.resampler.resampler(floats(2, 5, 4, 3), floats(2, 3, 7, 2) * 14)],
    "resize": lambda: [
        *(tf.image.resize_images(floats(1, 5, 5, 2), [8, 7], method) for method in range(4)),
        tf.image.resize_images(floats(1, 5, 5, 2), [8, 7], align_corners=True),
        tf.image.resize_bicubic(floats(1, 5, 5, 2), [3, 3]), tf.image.resize_area(floats(1, 5, 5, 2), [3, 3]),
        tf.image.resize_image_with_crop_or_pad(floats(1, 5, 5, 2), 3, 8),
        tf.image.crop_and_resize(floats(1, 5, 5, 2), [[0.0, 0.0, 1.0, 0.5]], [0], [4, 4]),
        tf.image.extract_glimpse(floats(1, 5, 5, 2), [3, 3], [[0.0, 0.2]])],
    "pictures": lambda: [
        tf.image.rgb_to_hsv(shares(2, 2, 3)), tf.image.adjust_contrast(shares(2, 2, 3), 2.0),
        tf.image.adjust_hue(shares(2, 2, 3), 0.1), tf.image.per_image_standardization(floats(4, 4, 3)),
        tf.image.total_variation(floats(4, 4, 3)), tf.image.central_crop(floats(6, 6, 3), 0.5),
        tf.image.psnr(shares(8, 8, 3), shares(8, 8, 3) * 0.9, 1.0),
        tf.image.extract_image_patches(floats(1, 6, 6, 1), [1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID"),
        tf.image.non_max_suppression([[0.0, 0, 1, 1], [0.0, 0, 1, 0.9], [2.0, 2, 3, 3]], [0.9, 0.8, 0.7], 2)],
    "random": lambda: ([
        tf.random_uniform([3], seed=5), tf.random_normal([3], seed=5), tf.truncated_normal([3], seed=6),
        tf.random_shuffle(tf.range(6), seed=3), tf.multinomial([[1.0, 2.0, 3.0]], 4, seed=2),
        tf.random_gamma([2], 1.0, seed=4), NN.dropout(floats(6), 0.5, seed=3),
        NN.dropout(floats(6), keep_prob=0.3, seed=3),
        tf.random_crop(floats(6, 6), [2, 2], seed=2), tf.image.random_flip_left_right(floats(4, 4, 1), seed=2),
        tf.image.random_brightness(floats(4, 4, 1), 0.5, seed=2)], 2),
    "initializers": lambda: [
        tf.glorot_uniform_initializer(seed=3)([4, 3]), tf.truncated_normal_initializer(stddev=0.1, seed=3)([4, 3]),
        tf.orthogonal_initializer(seed=3)([4, 4]), tf.random_uniform_initializer(seed=4)([3]),
        tf.variance_scaling_initializer(seed=3)([4, 3]), C.layers.xavier_initializer(seed=3)([4, 3]),
        C.layers.variance_scaling_initializer(seed=3)([4, 3]), tf.uniform_unit_scaling_initializer(seed=3)([4, 3]),
        tf.keras.initializers.he_normal(seed=3)([4, 3])],
    "sampled": lambda: [
        NN.nce_loss(floats(10, 4), floats(10), ids(10, 3, 1), floats(3, 4), 4, 10,
                    sampled_values=(tf.constant([1, 2, 3, 4], tf.int64), tf.ones([3, 1]), tf.ones([4]))),
        NN.sampled_softmax_loss(floats(10, 4), floats(10), ids(10, 3, 1), floats(3, 4), 4, 10, seed=3),
        NN.log_uniform_candidate_sampler(ids(10, 3, 1), 1, 4, True, 10, seed=3)[0],
        NN.fixed_unigram_candidate_sampler(ids(5, 3, 1), 1, 3, True, 5, unigrams=[1, 2, 3, 4, 5], seed=3)[0]],
    "ctc": lambda: [
        NN.ctc_loss(letters(), floats(5, 2, 4), [5, 4]), NN.ctc_greedy_decoder(floats(5, 2, 4), [5, 4])[0],
        NN.ctc_beam_search_decoder(floats(5, 2, 4), [5, 4], beam_width=4)[1], tf.edit_distance(letters(), letters())],
    "lookup": lambda: [
        K.index_table_from_tensor(tf.constant(["a", "b"]), num_oov_buckets=1).lookup(tf.constant(["b", "z"])),
        K.index_to_string_table_from_tensor(tf.constant(["a", "b"])).lookup(tf.constant([1, 5], tf.int64)),
        K.HashTable(K.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([3, 4], tf.int64)), -1).lookup(
            tf.constant(["b", "z"])),
        K.MutableHashTable(tf.string, tf.int64, -1).lookup(tf.constant(["a"])),
        K.string_to_index(tf.constant(["b"]), tf.constant(["a", "b"])),
        tf.string_to_hash_bucket_fast(["abc"], 100), tf.string_to_hash_bucket_strong(["abc"], 100, [1, 2]),
        tf.string_to_hash_bucket(["abc"], 100)],
    "sparse": lambda: [
        tf.sparse_tensor_to_dense(letters()), tf.sparse_to_dense([[0, 1]], [2, 2], 5.0, 0.0),
        tf.sparse_concat(1, [letters()] * 2), tf.sparse_reduce_sum(letters(), axis=1),
        NN.embedding_lookup_sparse([floats(3, 2), floats(3, 2)], tf.SparseTensor(
            [[0, 0], [1, 1]], tf.constant([1, 4], tf.int64), [2, 2]), None, combiner="mean"),
        NN.embedding_lookup([floats(3, 2), floats(2, 2)], [0, 1, 4], partition_strategy="div"),
        NN.embedding_lookup([floats(3, 2), floats(3, 2)], [0, 1, 4], max_norm=0.5)],
    "arguments": lambda: [
        tf.reduce_logsumexp(floats(3, 2), keep_dims=True), NN.moments(floats(3, 2), [0], keep_dims=True),
        NN.l2_normalize(floats(3, 2), dim=1), tf.argmax(floats(3, 2), dimension=1), NN.softmax(floats(3, 2), dim=0),
        tf.expand_dims(floats(3), dim=0), tf.squeeze(floats(1, 3), squeeze_dims=[0]), tf.setdiff1d([1, 2, 3], [2]),
        NN.log_poisson_loss(floats(3), shares(3)), NN.weighted_cross_entropy_with_logits(shares(3), floats(3), 2.0),
        NN.xw_plus_b(floats(3, 2), floats(2, 4), floats(4)), tf.clip_by_average_norm(floats(4), 0.1),
        NN.lrn(floats(1, 2, 2, 4)), NN.fused_batch_norm(floats(2, 3, 3, 4), tf.ones(4), tf.zeros(4))[0],
        NN.max_pool_with_argmax(floats(1, 4, 4, 1), [1, 2, 2, 1], [1, 2, 2, 1], "SAME"),
        NN.atrous_conv2d(floats(1, 6, 6, 1), floats(2, 2, 1, 1), 2, "SAME"),
        NN.separable_conv2d(floats(1, 6, 6, 2), floats(2, 2, 2, 1), floats(1, 1, 2, 3), [1, 1, 1, 1], "SAME")],
    "text": lambda: [
        tf.string_split(["a b", "c"]), tf.string_join(["a", "b"], separator="-"), tf.substr("hello", 1, 2),
        tf.as_string([1.5], precision=2), tf.decode_raw(tf.constant(b"\x01\x02"), tf.uint8),
        tf.decode_csv(["1,a"], [[0], [""]]), tf.regex_replace("aab", "a", "b"), tf.reduce_join([["a", "b"]], axis=1)],
    "distributions": lambda: [
        tf.distributions.kl_divergence(tf.distributions.Normal(0.0, 1.0), tf.distributions.Normal(1.0, 2.0)),
        tf.distributions.Categorical(floats(2, 3)).entropy(), tf.distributions.Beta(2.0, 3.0).mean(),
        tf.distributions.Bernoulli(logits=floats(3)).log_prob([1, 0, 1]),
        tf.distributions.Dirichlet(shares(3)).log_prob(NN.softmax(floats(3))),
        tf.distributions.Gamma(2.0, 3.0).log_prob(1.0), tf.distributions.StudentT(3.0, 0.0, 1.0).log_prob(0.3),
        tf.distributions.Laplace(0.0, 1.0).log_prob(0.3), tf.distributions.Exponential(2.0).log_prob(0.3)],
    "framework": lambda: [
        F.with_shape([2, 3], floats(2, 3)), F.reduce_sum_n([floats(3), floats(2)]), F.argsort(floats(5)),
        F.sort(floats(5), direction="DESCENDING"), F.nest.flatten({"b": [1, 2], "a": 3}),
        F.remove_squeezable_dimensions(floats(4, 1), floats(4))],
    "found_variables": found_variables, "hyperparameters": hyperparameters, "datasets": datasets, "queues": queues,
}
