"""The history of a training, as one HTML page: `ps_train report`.

    history    reads values over steps from the event files, and events, cluster and workers from the journal
    evaluated  the evaluations as events, and which of them was the best
    page       draws charts, and puts them and tables into one HTML file
    writing    decides the contents of the page, and writes it

Start with `writing.py`.
"""
