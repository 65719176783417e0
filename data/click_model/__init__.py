"""The model from which `data.clicks` draws its examples. Start with `model.py`.

    model    draws examples and knows the probability of each click
    hashing  the ids that `data.tabular.features` gives to the strings, computed in numpy
    scores   AUC and log loss of probabilities
    writing  writes the examples to files in Criteo's format, or as TFRecords
"""
