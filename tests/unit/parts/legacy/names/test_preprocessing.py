"""contrib.learn.preprocessing: texts to ids of words."""

from __future__ import annotations

import pytest

from ps_train.parts.legacy.names.preprocessing import ByteProcessor, CategoricalVocabulary, VocabularyProcessor

TEXTS = ["the cat sat", "the cat's mat-tress, and THE dog", "the End"]


def test_words_have_ids_in_the_order_of_their_first_text():
    """Rows are cut off, or have zeros behind the last word; an unknown word is 0."""
    processor = VocabularyProcessor(4)
    ids = [row.tolist() for row in processor.fit_transform(TEXTS)]
    assert ids == [[1, 2, 3, 0], [1, 4, 5, 6], [1, 9, 0, 0]]
    assert len(processor.vocabulary_) == 10 and processor.vocabulary_._mapping["THE"] == 7
    assert [row.tolist() for row in processor.transform(["a cat End"])] == [[0, 2, 9, 0]]
    assert list(processor.reverse([[1, 2, 0]])) == ["the cat <UNK>"]


def test_rare_words_are_left_out_and_frequent_ones_come_first():
    """Of equals the alphabet decides."""
    processor = VocabularyProcessor(3, min_frequency=1, tokenizer_fn=lambda texts: (text.split() for text in texts))
    processor.fit(["b a b c", "c a c", "d"])
    assert processor.vocabulary_._mapping == {"<UNK>": 0, "c": 1, "a": 2, "b": 3}


def test_counts_bound_a_vocabulary_from_both_sides():
    """Numbers are categories, too; a category that was only asked for has no count."""
    vocabulary = CategoricalVocabulary()
    for category, count in (("c", 5), ("a", 10), (7, 10), ("d", 12)):
        vocabulary.add(category, count)
    assert vocabulary.get("asked") == 5
    vocabulary.trim(7, 11)
    vocabulary.freeze()
    assert [vocabulary.get(category) for category in (7, "a", "c", "d", "asked", "new")] == [1, 2, 0, 0, 0, 0]
    assert vocabulary.reverse(2) == "a"
    with pytest.raises(ValueError, match="support_reverse"):
        CategoricalVocabulary(support_reverse=False).reverse(0)


def test_a_processor_is_restored_from_its_file(tmp_path):
    """And gives a text the same ids."""
    processor = VocabularyProcessor(5).fit(TEXTS)
    processor.save(str(tmp_path / "vocabulary"))
    restored = VocabularyProcessor.restore(str(tmp_path / "vocabulary"))
    assert [row.tolist() for row in restored.transform(TEXTS)] == [row.tolist() for row in processor.transform(TEXTS)]


def test_texts_as_bytes():
    """Of UTF-8, with zeros behind, and cut where a character may be; a cut one gives no text."""
    processor = ByteProcessor(5)
    rows = list(processor.fit_transform(["ab", "\u00e9t\u00e9s", b"abcdefg", "abcd\u00e9"]))
    assert [row.tolist() for row in rows] == [
        [97, 98, 0, 0, 0], [195, 169, 116, 195, 169], [97, 98, 99, 100, 101], [97, 98, 99, 100, 195]]
    assert list(processor.reverse(rows)) == ["ab", "\u00e9t\u00e9", "abcde", ""]
