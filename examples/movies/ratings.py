"""The dataset: ratings from 1 to 5, drawn from the tastes of users and the genres of movies."""

import numpy as np

import ps_train

NUM_USERS, NUM_MOVIES, NUM_GENRES = 1000, 300, 5
NOISE = 0.5


def tastes():
    """Returns how much each user likes each genre, [NUM_USERS, NUM_GENRES], and the quality of movies, [NUM_MOVIES]."""
    rng = np.random.default_rng(0)
    return rng.normal(scale=0.7, size=(NUM_USERS, NUM_GENRES)), rng.normal(scale=0.4, size=NUM_MOVIES)


def draw(count, seed):
    """Returns users and movies, int64 [count], and float32 ratings [count]."""
    rng = np.random.default_rng(seed)
    users = rng.integers(NUM_USERS, size=count)
    movies = (NUM_MOVIES * rng.random(count) ** 2).astype(np.int64)  # those with small numbers are watched more
    of_genres, quality = tastes()
    ratings = 3 + of_genres[users, movies % NUM_GENRES] + quality[movies] + rng.normal(scale=NOISE, size=count)
    return users, movies, np.clip(ratings, 1, 5).astype(np.float32)


def input_fn(mode, params, shard):
    """Returns a tf.data.Dataset of ({"user": [batch], "movie": [batch]}, ratings [batch])."""
    training = mode == ps_train.TRAIN
    index, count = shard  # this worker's share
    arrays = draw(200_000, seed=1) if training else draw(10_000, seed=2)
    batches = ps_train.from_arrays([array[index::count] for array in arrays], params["batch_size"],
                                   shuffle=training, repeat=training, seed=params["seed"])
    return batches.map(lambda user, movie, rating: ({"user": user, "movie": movie}, rating))
