"""Status: what does a worker know after a step, what does that cost, and what does it report of it?

    step_status   the values, and the operations that read them: one transfer from ps 0
    step_reports  progress lines, summaries, staleness
"""
