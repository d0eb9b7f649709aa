"""How Quits is started, stopped and tested on one machine.

Standard library only: these modules run before `.venv` exists.
"""
