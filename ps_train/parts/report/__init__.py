"""`ps_train report`: the history of a training, as one HTML page.

    verb     the flags and the verb
    writing  decides the contents of the page, and writes it
    curves   reads values over steps from the event files, and evaluations as events
    page     draws charts, and puts them and tables into one HTML file

Runs, events and workers come from the journal, by `control/history.py`. Start with `writing.py`.
"""
