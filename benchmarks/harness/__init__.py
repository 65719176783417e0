"""What the tools of the benchmarks share.

    Trial --running--> a folder per run: run.json, recording --evaluation--> curve.json --measures--> report, plot
"""
