"""`tf.contrib.image`: rotations and other projective transforms, warps, greedy matches, and colours.

A transform is a vector of 8 numbers `[a0, a1, a2, b0, b1, b2, c0, c1]`: the pixel at (x, y) of the output is that of
the input at `((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k)` with `k = c0 x + c1 y + 1`, and 0 outside of it.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

_TYPES = {tf.uint8, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64}
# What is left of a chosen pair of `bipartite_match` in its matrix.
_TAKEN = float("inf")
# RGB -> YIQ, of NTSC: https://en.wikipedia.org/wiki/YIQ
_YIQ = [[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]]


def transform(images: Any, transforms: Any, interpolation: str = "NEAREST", output_shape: Any = None,
              name: str | None = None) -> tf.Tensor:
    """Transforms images [batch, height, width, channels], [height, width, channels] or [height, width].

    Args:
      images: of one of the types uint8, int32, int64, float16, float32 or float64.
      transforms: float32 [8], or [batch, 8] for one of each image.
      interpolation: "NEAREST" or "BILINEAR".
      output_shape: the height and width of the result, by default those of the images.
      name: of the operations.

    Raises:
      TypeError: the type or the rank of an argument is another one.
    """
    with tf.name_scope(name, "transform"):
        images, transforms = tf.convert_to_tensor(images), _rows_of(transforms, "Transforms")
        batch = _batch_of(images)
        result = tf.raw_ops.ImageProjectiveTransformV2(
            images=batch, transforms=transforms, interpolation=interpolation.upper(),
            output_shape=tf.cast(_shape_of(batch) if output_shape is None else output_shape, tf.int32))
        if images.shape.rank == 4:
            return result
        return result[0, :, :, 0] if images.shape.rank == 2 else result[0]


def _batch_of(images: tf.Tensor) -> tf.Tensor:
    if images.dtype.base_dtype not in _TYPES:
        raise TypeError(f"Invalid dtype {images.dtype}.")
    if images.shape.rank not in (2, 3, 4):
        raise TypeError("Images should have rank between 2 and 4.")
    if images.shape.rank == 4:
        return images
    return images[tf.newaxis, :, :, tf.newaxis] if images.shape.rank == 2 else images[tf.newaxis]


def _rows_of(values: Any, what: str) -> tf.Tensor:
    """Returns float32 [n, ...] for values with or without the first axis."""
    values = tf.convert_to_tensor(values, tf.float32)
    if values.shape.rank not in (1, 2):
        raise TypeError(f"{what} should have rank 1 or 2.")
    return values[tf.newaxis] if values.shape.rank == 1 else values


def _shape_of(batch: tf.Tensor) -> Any:
    """Returns height and width, as numbers if they are known."""
    static = batch.shape[1:3]
    return static.as_list() if static.is_fully_defined() else tf.shape(batch)[1:3]


def rotate(images: Any, angles: Any, interpolation: str = "NEAREST", name: str | None = None) -> tf.Tensor:
    """Rotates images counterclockwise about their centre, by angles in radians: [] or [batch]."""
    with tf.name_scope(name, "rotate"):
        images = tf.convert_to_tensor(images)
        height, width = tf.unstack(tf.cast(tf.shape(_batch_of(images))[1:3], tf.float32)[:, tf.newaxis])
        return transform(images, angles_to_projective_transforms(angles, height, width), interpolation)


def angles_to_projective_transforms(angles: Any, image_height: Any, image_width: Any,
                                    name: str | None = None) -> tf.Tensor:
    """Returns the transforms [n, 8] that rotate images of a size by angles in radians, [] or [n]."""
    with tf.name_scope(name, "angles_to_projective_transforms"):
        angles = tf.convert_to_tensor(angles, tf.float32)
        if angles.shape.rank not in (0, 1):
            raise TypeError("Angles should have rank 0 or 1.")
        angles = angles[tf.newaxis] if angles.shape.rank == 0 else angles
        cosine, sine = tf.cos(angles), tf.sin(angles)
        right, bottom = image_width - 1, image_height - 1
        x = (right - (cosine * right - sine * bottom)) / 2.0
        y = (bottom - (sine * right + cosine * bottom)) / 2.0
        zero = tf.zeros_like(cosine)
        return tf.stack([cosine, -sine, x, sine, cosine, y, zero, zero], 1)


def translate(images: Any, translations: Any, interpolation: str = "NEAREST", name: str | None = None) -> tf.Tensor:
    """Moves images by vectors (right, down) in pixels: [2], or [batch, 2]."""
    with tf.name_scope(name, "translate"):
        return transform(images, translations_to_projective_transforms(translations), interpolation)


def translations_to_projective_transforms(translations: Any, name: str | None = None) -> tf.Tensor:
    """Returns the transforms [n, 8] that move images by vectors [n, 2]."""
    with tf.name_scope(name, "translations_to_projective_transforms"):
        x, y = tf.unstack(_rows_of(translations, "Translations"), 2, 1)
        one, zero = tf.ones_like(x), tf.zeros_like(x)
        return tf.stack([one, zero, -x, zero, one, -y, zero, zero], 1)


def flat_transforms_to_matrices(transforms: Any) -> tf.Tensor:
    """Returns the matrices [n, 3, 3] of transforms."""
    with tf.name_scope("flat_transforms_to_matrices"):
        transforms = tf.reshape(transforms, [-1, 8])
        return tf.reshape(tf.concat([transforms, tf.ones([tf.shape(transforms)[0], 1])], 1), [-1, 3, 3])


def matrices_to_flat_transforms(transform_matrices: Any) -> tf.Tensor:
    """Returns the transforms [n, 8] of matrices [n, 3, 3] or [3, 3]; those of multiples of a matrix are the same."""
    with tf.name_scope("matrices_to_flat_transforms"):
        flat = tf.reshape(transform_matrices, [-1, 9])
        return (flat / flat[:, 8:])[:, :8]


def compose_transforms(*transforms: Any) -> tf.Tensor:
    """Returns the transforms [n, 8] that apply the first of these, and then the others in turn."""
    with tf.name_scope("compose_transforms"):
        composed = flat_transforms_to_matrices(transforms[0])
        for other in transforms[1:]:
            composed = tf.matmul(composed, flat_transforms_to_matrices(other))
        return matrices_to_flat_transforms(composed)


def dense_image_warp(image: Any, flow: Any, name: str = "dense_image_warp") -> tf.Tensor:
    """Returns the pixels of the image [batch, height, width, channels] at (y, x) - flow, interpolated.

    Args:
      image: of at least 2 rows and 2 columns; the next pixel within it counts for one that is outside.
      flow: float [batch, height, width, 2].
      name: of the operations.
    """
    with tf.name_scope(name):
        image, flow = tf.convert_to_tensor(image), tf.convert_to_tensor(flow)
        height, width = tf.shape(image)[1], tf.shape(image)[2]
        rows, columns = tf.meshgrid(tf.range(height), tf.range(width), indexing="ij")
        points = tf.cast(tf.stack([rows, columns], 2), flow.dtype)[tf.newaxis] - flow
        (top, beside_top), (left, beside_left) = (
            _between(points[..., axis], size, image.dtype) for axis, size in enumerate((height, width)))

        def at(y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
            return tf.gather_nd(image, tf.stack([y, x], -1), batch_dims=1)
        upper = beside_left * (at(top, left + 1) - at(top, left)) + at(top, left)
        lower = beside_left * (at(top + 1, left + 1) - at(top + 1, left)) + at(top + 1, left)
        return tf.ensure_shape(beside_top * (lower - upper) + upper, image.shape)


def _between(places: tf.Tensor, size: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the pixel before each place along an axis, int32, and how far behind it the place is, from 0 to 1."""
    first = tf.clip_by_value(tf.floor(places), 0, tf.cast(size - 2, places.dtype))
    share = tf.clip_by_value(tf.cast(places - first, dtype), 0, 1)
    return tf.cast(first, tf.int32), share[..., tf.newaxis]


def resampler(data: Any, warp: Any, name: str = "resampler") -> tf.Tensor:
    """Returns the pixels of the images at places, interpolated between the four around each; 0 counts for one outside.

    Args:
      data: float [batch, height, width, channels].
      warp: float [batch, ..., 2], the places (x, y).
      name: of the operations.

    Returns:
      float [batch, ..., channels].
    """
    with tf.name_scope(name):
        data, warp = tf.convert_to_tensor(data), tf.convert_to_tensor(warp)
        size = tf.shape(data)[1:3]
        corner = tf.floor(warp)
        part = warp - corner
        result: Any = 0.0
        for right, below in ((0, 0), (1, 0), (0, 1), (1, 1)):
            step = tf.constant([right, below], warp.dtype)
            share = tf.reduce_prod(step * part + (1 - step) * (1 - part), -1, keepdims=True)
            y_x = tf.reverse(tf.cast(corner + step, tf.int32), [-1])
            is_inside = tf.reduce_all((y_x >= 0) & (y_x < size), -1, keepdims=True)
            pixel = tf.gather_nd(data, tf.clip_by_value(y_x, 0, size - 1), batch_dims=1)
            result += tf.where_v2(is_inside, share, 0) * pixel
        return result


def bipartite_match(distance_mat: Any, num_valid_rows: Any, top_k: int = -1,
                    name: str = "bipartite_match") -> tuple[tf.Tensor, tf.Tensor]:
    """Matches rows and columns of a matrix greedily: those with the least distance first.

    Args:
      distance_mat: float [rows, columns].
      num_valid_rows: only that many rows, the first ones, are matched; all if it is negative.
      top_k: at most that many pairs; all if it is negative.
      name: of the operations.

    Returns:
      the column of each row, int32 [rows], and the row of each column, int32 [columns]; -1 for none.
    """
    with tf.name_scope(name):
        distances = tf.convert_to_tensor(distance_mat)
        rows, columns = tf.unstack(tf.shape(distances))
        valid = tf.cast(tf.reshape(num_valid_rows, []), tf.int32)
        valid = tf.where(valid < 0, rows, tf.minimum(valid, rows))
        is_row = tf.sequence_mask(valid, rows)
        count = tf.minimum(valid, columns)
        count = tf.minimum(count, top_k) if top_k >= 0 else count
        free = tf.where(tf.tile(is_row[:, tf.newaxis], [1, columns]), distances, tf.fill([rows, columns], _TAKEN))

        def match(step: tf.Tensor, free: tf.Tensor, of_rows: tf.Tensor, of_columns: tf.Tensor) -> tuple:
            best = tf.argmin(tf.reshape(free, [-1]), output_type=tf.int32)
            row, column = best // columns, best % columns
            here, there = tf.equal(tf.range(rows), row), tf.equal(tf.range(columns), column)
            taken = here[:, tf.newaxis] | there
            return (step + 1, tf.where(taken, tf.fill([rows, columns], _TAKEN), free),
                    tf.where(here, tf.fill([rows], column), of_rows),
                    tf.where(there, tf.fill([columns], row), of_columns))
        none = -tf.ones([rows], tf.int32), -tf.ones([columns], tf.int32)
        _, _, of_rows, of_columns = tf.while_loop(
            lambda step, *_: step < count, match, [0, free, *none], parallel_iterations=1)
        return of_rows, of_columns


def adjust_hsv_in_yiq(image: Any, delta_hue: Any = 0, saturation_scale: Any = 1, value_scale: Any = 1,
                      name: str | None = None) -> tf.Tensor:
    """Changes the colours of images [..., 3] in the space YIQ, which is linear: one product of matrices.

    Args:
      image: in RGB, of any type of images.
      delta_hue: by how much the hue is turned, in radians.
      saturation_scale: a factor of the saturation.
      value_scale: a factor of the value.
      name: of the operations.
    """
    with tf.name_scope(name, "adjust_hsv_in_yiq"):
        image = tf.convert_to_tensor(image)
        pixels = tf.image.convert_image_dtype(image, tf.float32)
        hue, saturation, value = (tf.cast(one, tf.float32) for one in (delta_hue, saturation_scale, value_scale))
        along, across = (value * saturation * turn(hue) for turn in (tf.cos, tf.sin))
        none = tf.zeros([])
        change = tf.reshape(tf.stack([value, none, none, none, along, -across, none, across, along]), [3, 3])
        to_yiq = tf.constant(_YIQ, tf.float32)
        pixels = tf.tensordot(pixels, tf.matmul(tf.linalg.inv(to_yiq), tf.matmul(change, to_yiq)), [[-1], [1]])
        return tf.image.convert_image_dtype(tf.ensure_shape(pixels, image.shape), image.dtype)


def random_hsv_in_yiq(
    image: Any, max_delta_hue: float = 0, lower_saturation: float = 1, upper_saturation: float = 1,
    lower_value: float = 1, upper_value: float = 1, seed: int | None = None,
) -> tf.Tensor:
    """Changes the colours of all images alike, by numbers that are drawn between the bounds.

    Raises:
      ValueError: a bound is below 0, or a lower one is above the upper one.
    """
    if max_delta_hue < 0:
        raise ValueError(f"random_hsv_in_yiq: got max_delta_hue={max_delta_hue}; allowed: 0 or more")
    for what, lower, upper in (("saturation", lower_saturation, upper_saturation), ("value", lower_value, upper_value)):
        if not 0 <= lower <= upper:
            raise ValueError(f"random_hsv_in_yiq: got lower_{what}={lower} and upper_{what}={upper}; allowed: 0 or "
                             "more, and the lower one at most as the upper one")
    hue = tf.random_uniform([], -max_delta_hue, max_delta_hue, seed=seed)
    saturation = tf.random_uniform([], lower_saturation, upper_saturation, seed=seed)
    return adjust_hsv_in_yiq(image, hue, saturation, tf.random_uniform([], lower_value, upper_value, seed=seed))
