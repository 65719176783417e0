"""A process that trains under a strategy: by Model.fit, or by a loop of the plug-in's own.

    trainer --> planning (which epochs) --> inputs --> fitting or custom_loops --> final_report

Start with `trainer.py`.
"""
