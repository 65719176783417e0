"""What is to be done about an error in the user's code, where the line alone does not say it?

    missing_modules.py  an import that fails: a package to install, or a module that is elsewhere
    python2.py          code of Python 2
"""
