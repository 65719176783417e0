"""What happened in a training, as one HTML page: `ps_train report`.

    series   the values over steps, from the event files
    story    the events, the cluster and each worker's steps, from the journal
    charts   draws them, as SVG
    page     puts charts and tables into one file
    writing  reads the folder and writes the page

Start with `writing.py`.
"""
