"""A server of the live model in a publisher's folder: `python live_serving.py FOLDER PORT [follow]`.

With `follow` it takes the pushes from the folder, otherwise from the publisher, whose target it is.
"""

import sys
import threading

import ps_train

folder, port, *words = sys.argv[1:]
with ps_train.LiveModel(folder) as model, ps_train.predict_server(model, int(port), takes_pushes=True):
    if words:
        model.follow(poll_secs=0.2)
    print(f"serving at push {model.status()['number']}", flush=True)
    threading.Event().wait()
