"""Stands in for gensim 3, whose files of vectors gensim 4 and later do not read."""
