"""Fresh rows: events whose ids change their meaning, and a live model that follows: `python -m benchmarks.drift`.

    __main__    the tool: starts the training and the publisher, tables and plot
    events      draws the events, and appends them to files at a rate
    serving     a live model and a fixed export, which predict each event before it is trained on
"""
