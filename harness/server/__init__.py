"""The living server as a process tree: `living.Server`, and what it is made of.

Nothing is imported here: the keeper runs with the standard library alone, and importing its modules imports this.
"""
