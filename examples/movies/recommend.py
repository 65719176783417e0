"""Recommends movies to a user, with the tables of the newest checkpoint: python recommend.py TRAIN_DIR USER FILE."""

import sys

import numpy as np
import tensorflow as tf

import ps_train


def read(checkpoint, table):
    """Returns a table's ids, int64 [n], and their rows, float32 [n, dim]."""
    ids, rows = zip(*ps_train.read_table(checkpoint, table))
    return np.concatenate(ids), np.concatenate(rows)


def main(train_dir, user, path):
    """Writes the ten movies with the highest ratings to a file, and prints them."""
    checkpoint = tf.train.latest_checkpoint(train_dir)
    users, of_users = read(checkpoint, "users")
    movies, of_movies = read(checkpoint, "movies")
    [row] = of_users[users == user]
    ratings = tf.train.load_variable(checkpoint, "mean") + row[-1] + of_movies[:, -1] + of_movies[:, :-1] @ row[:-1]
    best = np.argsort(-ratings)[:10]
    lines = [f"movie {movies[place]:3d}, genre {movies[place] % 5}: {ratings[place]:.2f}" for place in best]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, ""]))
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
