"""How does the code of a script change on its way into Python? `--python2` and `--map_path`; no file is changed.

    file --python2.py--> Python 3 --division.py--> its / as Python 2 divides --paths.py--> other paths --> compiled

Start with `loading.py`, which does this for the script and for the modules beside it.

    loading.py    compiles the script, and each local module that it imports
    python2.py    Python 2's text as Python 3's
    division.py   a division of whole numbers gives a whole number
    paths.py      the paths that are written into the code
"""
