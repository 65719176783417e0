"""contrib.learn.preprocessing: words to ids. Id 0 is of padding and of unknown words.

Scripts read `vocabulary_._mapping`, so it has that name here, too.
"""

from __future__ import annotations

import collections
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

# Words in capitals; a capitalised word in front of a capital; letters, digits, apostrophes and hyphens.
_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|[\'\w\-]+")


def tokenizer(iterator: Iterable[str]) -> Iterator[list[str]]:
    """Yields the words of each text."""
    return (_WORD.findall(text) for text in iterator)


class CategoricalVocabulary:
    """A growing map from categories, such as words, to ids from 1."""

    def __init__(self, unknown_token: str = "<UNK>", support_reverse: bool = True) -> None:
        """Starts with the token of id 0."""
        self._unknown_token, self._support_reverse = unknown_token, support_reverse
        self._mapping: dict[Any, int] = {unknown_token: 0}
        self._reverse_mapping = [unknown_token]
        self._freq: collections.Counter = collections.Counter()
        self._freeze = False

    def __len__(self) -> int:
        """Returns the number of categories, the unknown token included."""
        return len(self._mapping)

    def freeze(self, freeze: bool = True) -> None:
        """From now on new categories have id 0, or an id of their own again."""
        self._freeze = freeze

    def get(self, category: Any) -> int:
        """Returns the id of a category, a new one if it is new."""
        if category not in self._mapping:
            if self._freeze:
                return 0
            self._mapping[category] = len(self._mapping)
            self._reverse_mapping.append(category)
        return self._mapping[category]

    def add(self, category: Any, count: int = 1) -> None:
        """Counts a category, which gets an id if it is new."""
        if self.get(category) > 0:
            self._freq[category] += count

    def trim(self, min_frequency: int, max_frequency: int = -1) -> None:
        """Keeps those counted more than min and, if max is not -1, less than max times; the frequent come first."""
        # Of equals, numbers come first, then the alphabet decides.
        ordered = sorted(self._freq.items(), key=lambda item: (-item[1], isinstance(item[0], str), item[0]))
        kept = [(category, count) for category, count in ordered
                if count > min_frequency and not 0 < max_frequency <= count]
        self._freq = collections.Counter(dict(kept))
        self._reverse_mapping = [self._unknown_token, *(category for category, _ in kept)]
        self._mapping = {category: number for number, category in enumerate(self._reverse_mapping)}

    def reverse(self, class_id: int) -> Any:
        """Returns the category of an id."""
        if not self._support_reverse:
            raise ValueError("This vocabulary wasn't initialized with support_reverse to support reverse() function.")
        return self._reverse_mapping[class_id]


class VocabularyProcessor:
    """Texts to ids of words: int64 [max_document_length] each, cut off or with zeros behind the last word."""

    def __init__(
        self, max_document_length: int, min_frequency: int = 0, vocabulary: CategoricalVocabulary | None = None,
        tokenizer_fn: Callable | None = None,
    ) -> None:
        """Takes contrib.learn's arguments; `fit` leaves out words that occur at most `min_frequency` times."""
        self.max_document_length, self.min_frequency = max_document_length, min_frequency
        self.vocabulary_ = vocabulary or CategoricalVocabulary()
        self._tokenizer = tokenizer_fn or tokenizer

    def fit(self, raw_documents: Iterable[str], unused_y: Any = None) -> VocabularyProcessor:
        """Learns the words of the texts; returns itself."""
        for words in self._tokenizer(raw_documents):
            for word in words:
                self.vocabulary_.add(word)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def fit_transform(self, raw_documents: Iterable[str], unused_y: Any = None) -> Iterator[np.ndarray]:
        """Learns the words of the texts, and yields the ids of each."""
        self.fit(raw_documents)
        return self.transform(raw_documents)

    def transform(self, raw_documents: Iterable[str]) -> Iterator[np.ndarray]:
        """Yields the ids of each text."""
        for words in self._tokenizer(raw_documents):
            ids = np.zeros(self.max_document_length, np.int64)
            known = [self.vocabulary_.get(word) for word in list(words)[:self.max_document_length]]
            ids[:len(known)] = known
            yield ids

    def reverse(self, documents: Iterable[Iterable[int]]) -> Iterator[str]:
        """Yields the text of each row of ids, with a space between two words."""
        return (" ".join(self.vocabulary_.reverse(number) for number in ids) for ids in documents)

    def save(self, filename: str) -> None:
        """Writes it to a file."""
        with open(filename, "wb") as file:
            pickle.dump(self, file)

    @classmethod
    def restore(cls, filename: str) -> VocabularyProcessor:
        """Reads a file of `save`, which may contain code: read only files that you trust."""
        with open(filename, "rb") as file:
            return pickle.load(file)


class ByteProcessor:
    """Maps texts to the bytes of their UTF-8."""

    def __init__(self, max_document_length: int) -> None:
        """Takes how many bytes of a text count."""
        self.max_document_length = max_document_length

    def fit(self, x: Any) -> None:
        """Does nothing, as there is nothing to learn."""

    def fit_transform(self, x: Iterable[str | bytes]) -> Iterator[np.ndarray]:
        """Yields the bytes of each text."""
        return self.transform(x)

    def transform(self, x: Iterable[str | bytes]) -> Iterator[np.ndarray]:
        """Yields the first bytes of each text, uint8 [max_document_length], with zeros behind a short one."""
        for text in x:
            data = (text.encode("utf-8") if isinstance(text, str) else bytes(text))[:self.max_document_length]
            yield np.frombuffer(data.ljust(self.max_document_length, b"\0"), np.uint8)

    def reverse(self, x: Iterable[np.ndarray]) -> Iterator[str]:
        """Yields the text of each row of bytes; an empty one for what is no UTF-8."""
        for row in x:
            try:
                yield np.asarray(row).astype(np.uint8).tobytes().rstrip(b"\0").decode("utf-8")
            except UnicodeDecodeError:
                yield ""
