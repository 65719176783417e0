"""Asks a server for articles: `python ask.py 8500 ARTICLE...`; of a folder, it starts a server for itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

import ps_train


def ask(port: int, articles: Sequence[int]) -> np.ndarray:
    """Returns the probability of a click on each article, float32 [n], from the server at a port of this machine."""
    call = ps_train.predict_client(f"localhost:{port}/news")
    return call("serving_default", {"article": np.array(articles, np.int64)})["probability"]


def main(place: str, articles: Sequence[int]) -> None:
    """Prints the probabilities."""
    if place.isdigit():
        found = ask(int(place), articles)
    else:
        with ps_train.LiveModel(place) as model, ps_train.predict_server(model, 0) as port:
            found = ask(port, articles)
    for article, probability in zip(articles, found):
        print(f"article {article}: {probability:.2f}")


if __name__ == "__main__":
    main(sys.argv[1], [int(word) for word in sys.argv[2:]])
